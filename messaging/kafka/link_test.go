package kafka

import (
	"context"
	"errors"
	"net"
	"sync"
)

// link is the network of one broker of the tests. It can be cut.
type link struct {
	mu    sync.Mutex
	down  bool
	conns map[net.Conn]bool
}

func newLink() *link { return &link{conns: map[net.Conn]bool{}} }

// linked is a connection that its link knows.
type linked struct {
	net.Conn
	of *link
}

func (c linked) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c.Conn)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

func (l *link) dial(ctx context.Context, network, host string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, host)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return nil, errors.Join(errors.New("link: the network is down"), conn.Close())
	}
	l.conns[conn] = true
	return linked{conn, l}, nil
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
