package linktest

import (
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Link is a way to a broker or a database that can be cut. It is one client's: cutting it disturbs no other test. A broker that sends its clients
// to another address than the one they know leads them around the link, and tests with cuts fail.
type Link struct {
	// URL is the URL of the server by way of the link. Addr is the host and port in it.
	URL, Addr string
	target    string

	mu     sync.Mutex
	down   bool
	flows  [2]flow       // by Direction
	thawed chan struct{} // closed while the link is not frozen
	conns  map[net.Conn]bool
	ways   sync.WaitGroup
}

// New listens on a port of its own and passes on what it gets. server is the URL of the server, with its port. The link ends with the test.
func New(t *testing.T, server string) *Link {
	t.Helper()
	u, err := url.Parse(server)
	require.NoError(t, err)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &Link{target: u.Host, conns: map[net.Conn]bool{}, thawed: make(chan struct{})}
	close(l.thawed)
	u.Host = listener.Addr().String()
	l.URL, l.Addr = u.String(), u.Host
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
		l.SetFrozen(false)
		l.SetDown(true)
		l.ways.Wait()
	})
	return l
}

func (l *Link) connect(client net.Conn) {
	server, err := new(net.Dialer).DialContext(context.Background(), "tcp", l.target)
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
		l.pass(ToServer, server, client)
		l.hangUp(client, server)
	})
	l.ways.Go(func() {
		l.pass(ToClient, client, server)
		l.hangUp(client, server)
	})
}

// pass copies what comes from one side to the other, while the link is not frozen, until an end or a limit closes the connection.
func (l *Link) pass(d Direction, to io.Writer, from io.Reader) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		l.mu.Lock()
		thawed := l.thawed
		l.mu.Unlock()
		<-thawed
		passing, open := l.allow(d, n)
		if _, failed := to.Write(buffer[:passing]); failed != nil || err != nil || !open {
			return
		}
	}
}

// SetFrozen stops or continues the flow of bytes in both directions. Connections stay open, as they do when a network loses all packets, or when a
// process is stopped.
func (l *Link) SetFrozen(frozen bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.thawed:
		if frozen {
			l.thawed = make(chan struct{})
		}
	default:
		if !frozen {
			close(l.thawed)
		}
	}
}

func (l *Link) hangUp(conns ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(l.conns, c)
	}
}

// Cut ends all connections. New ones are taken.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut()
}

func (l *Link) cut() {
	for c := range l.conns {
		_ = c.Close()
	}
}

// SetDown ends all connections, and says whether new ones are refused.
func (l *Link) SetDown(down bool) {
	l.mu.Lock()
	l.down = down
	l.mu.Unlock()
	l.Cut()
}
