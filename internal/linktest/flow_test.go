package linktest_test

import (
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/linktest"
)

// ends are the two sides of a connection over a link.
type ends struct{ client, server net.Conn }

// connect opens a connection over the link to a listener.
func connect(t *testing.T, l *linktest.Link, listener net.Listener) ends {
	t.Helper()
	client, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr)
	require.NoError(t, err)
	server, err := listener.Accept()
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = client.Close()
		_ = server.Close()
	})
	return ends{client, server}
}

func send(t *testing.T, to net.Conn, text string) {
	t.Helper()
	_, err := io.WriteString(to, text)
	require.NoError(t, err)
}

// requirePasses sends a text at one end and waits for it at the other one.
func requirePasses(t *testing.T, from, to net.Conn, text string) {
	t.Helper()
	send(t, from, text)
	read := make(chan string, 1)
	go func() {
		got := make([]byte, len(text))
		n, _ := io.ReadFull(to, got) // if it fails, less has come
		read <- string(got[:n])
	}()
	require.Equal(t, text, await.Receive(t, read, "%s to arrive", text))
}

// rest returns what comes until the connection ends.
func rest(t *testing.T, from net.Conn) string {
	t.Helper()
	read := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(from) // fails if the other side resets the connection
		read <- string(text)
	}()
	return await.Receive(t, read, "the connection to end")
}

// A limit is one of all connections in its direction. A silence loses bytes, and no connection. After both, new connections are whole.
func TestFlow(t *testing.T) {
	requests := func(e ends) (from, to net.Conn) { return e.client, e.server }
	answers := func(e ends) (from, to net.Conn) { return e.server, e.client }
	for name, c := range map[string]struct {
		direction   linktest.Direction
		along       func(ends) (from, to net.Conn)
		theOtherWay func(ends) (from, to net.Conn)
	}{
		"requests": {linktest.ToServer, requests, answers},
		"answers":  {linktest.ToClient, answers, requests},
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer listener.Close()
			link := linktest.New(t, "tcp://"+listener.Addr().String())
			opened := func() (e ends, from, to net.Conn) {
				e = connect(t, link, listener)
				from, to = c.along(e)
				requirePasses(t, from, to, "all")
				return e, from, to
			}

			first, from, to := opened()
			second, _, _ := opened()
			link.Limit(c.direction, 3)
			back, there := c.theOtherWay(first)
			requirePasses(t, back, there, "the other direction has no limit")
			send(t, from, "abcdef")
			require.Equal(t, "abc", rest(t, to))
			from, to = c.along(second)
			send(t, from, "x")
			require.Empty(t, rest(t, to))
			link.Mend()

			silent, from, to := opened()
			link.Silence(c.direction)
			send(t, from, "lost")
			back, there = c.theOtherWay(silent)
			requirePasses(t, back, there, "the connection is open")
			link.Mend()
			require.Empty(t, rest(t, to), "a connection that has lost something has no more")
			opened()
		})
	}
}
