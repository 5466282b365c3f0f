package kafka

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/messaging"
)

// late is a connection whose Write ends after the bytes have left, when the connection is closed.
type late struct {
	net.Conn

	left   chan struct{}
	closed chan struct{}
	once   sync.Once
}

func (l *late) Write(request []byte) (int, error) {
	n, err := l.Conn.Write(request)
	if len(request) > 6 && binary.BigEndian.Uint16(request[4:]) == 0 {
		l.left <- struct{}{}
		<-l.closed
	}
	return n, err
}

func (l *late) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Conn.Close()
}

// The call ends when the messages have left, and the client does not know that yet.
func TestMessagesThatAreJustLeavingMayBeStored(t *testing.T) {
	t.Parallel()
	cfg := configOf(cluster(t).ListenAddrs()...)
	cfg.Partitions = 1
	left := make(chan struct{}, 1)
	cfg.dial = func(ctx context.Context, network, host string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, host)
		return &late{Conn: conn, left: left, closed: make(chan struct{})}, err
	}
	b := connect(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- b.Publish(ctx, series("order", "a", 1)) }()
	await.Receive(t, left, "the first request")
	cancel()
	for _, err := range failures(t, await.Receive(t, done, "the end of the call")) {
		require.ErrorIs(t, err, messaging.ErrUnknown)
	}
}
