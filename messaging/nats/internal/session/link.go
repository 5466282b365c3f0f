package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/oncebox/oncebox/messaging"
)

// Link is the state of the connection. The client reconnects by itself; Link lets others wait for that, and notice each loss: what was under way on a
// lost connection is unknown.
type Link struct {
	mu    sync.Mutex
	up    chan struct{} // closed while there is a connection
	down  chan struct{} // closed while there is none
	since time.Time
	why   error
}

// NewLink returns a link without a connection.
func NewLink() *Link {
	l := &Link{up: make(chan struct{}), down: make(chan struct{}), since: time.Now()}
	close(l.down)
	return l
}

var errClosed = errors.New("the connection is closed")

// Connected is called when there is a connection.
func (l *Link) Connected() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !IsDone(l.up) {
		close(l.up)
		l.down, l.since, l.why = make(chan struct{}), time.Now(), nil
	}
}

// Lost is called when the connection was lost, with the reason, or ended for good, with nil.
func (l *Link) Lost(why error) {
	if why == nil {
		why = errClosed
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !IsDone(l.down) {
		close(l.down)
		l.up, l.since, l.why = make(chan struct{}), time.Now(), why
	}
}

// Wait returns when there is a connection, with a channel that is closed when it is lost. The error is a [messaging.ErrBrokerDown].
func (l *Link) Wait(ctx context.Context) (lost <-chan struct{}, err error) {
	for {
		l.mu.Lock()
		up, down, why := l.up, l.down, l.why
		l.mu.Unlock()
		if IsDone(up) {
			return down, nil
		}
		select {
		case <-up:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: nats: %w: %w", messaging.ErrBrokerDown, context.Cause(ctx), why)
		}
	}
}

// State returns the connection as [messaging.ConnectedReceiver] defines it.
func (l *Link) State() messaging.Connection {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := messaging.Connection{Parts: 1, Since: l.since}
	if !IsDone(l.up) {
		c.Away, c.Err = 1, l.why
	}
	return c
}

// IsDone reports whether a channel is closed.
func IsDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
