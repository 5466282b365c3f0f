package pulsar

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// link is a way to the broker that can be cut. It is one client's: cutting it disturbs no other test. A standalone Pulsar
// sends its clients to no other address than the one they know; a broker that does leads them around the link, and the cases
// with cuts fail.
type link struct {
	url    string
	target string

	mu    sync.Mutex
	down  bool
	conns map[net.Conn]bool
	ways  sync.WaitGroup
}

// newLink listens on a port of its own and passes on what it gets.
func newLink(t *testing.T, broker string) *link {
	t.Helper()
	u, err := url.Parse(broker)
	require.NoError(t, err)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &link{url: "pulsar://" + listener.Addr().String(), target: u.Host, conns: map[net.Conn]bool{}}
	l.ways.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			l.connect(client)
		}
	})
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		l.setDown(true)
		l.ways.Wait()
	})
	return l
}

func (l *link) connect(client net.Conn) {
	server, err := net.Dial("tcp", l.target)
	if err != nil {
		_ = client.Close()
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		_ = client.Close()
		_ = server.Close()
		return
	}
	l.conns[client], l.conns[server] = true, true
	l.ways.Go(func() {
		_, _ = io.Copy(server, client)
		l.hangUp(client, server)
	})
	l.ways.Go(func() {
		_, _ = io.Copy(client, server)
		l.hangUp(client, server)
	})
}

func (l *link) hangUp(conns ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(l.conns, c)
	}
}

// cut ends all connections. New ones are taken.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		_ = c.Close()
	}
}

// setDown ends all connections, and says whether new ones are refused.
func (l *link) setDown(down bool) {
	l.mu.Lock()
	l.down = down
	l.mu.Unlock()
	l.cut()
}
