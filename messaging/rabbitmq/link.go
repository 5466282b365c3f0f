package rabbitmq

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/messaging"
)

// link keeps a connection to the broker open. When the connection is lost, it opens another one.
type link struct {
	name   string // of the connection at the broker
	dialer *dialer
	opened func(ctx context.Context, s *session) error // prepares a new connection; an error ends the connection
	say    func(err error)                             // called with nil when the connection is open, and with each reason why it is not

	ended chan struct{} // closed when the connection is not opened again

	mu      sync.Mutex
	current *session
	changed chan struct{} // closed and made anew at each change
	last    error
	since   time.Time // when the connection was opened or lost
}

// The pauses between attempts to open a connection.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 3 * time.Second
)

func newLink(name string, d *dialer) *link {
	return &link{
		name: name, dialer: d, ended: make(chan struct{}), changed: make(chan struct{}), since: time.Now(), last: errors.New("not connected yet"),
		opened: func(context.Context, *session) error { return nil }, say: func(error) {},
	}
}

// open makes one attempt to open the connection.
func (l *link) open(ctx context.Context) (*session, error) {
	s, err := l.dialer.dial(ctx, l.name)
	if err == nil {
		if err = l.opened(ctx, s); err != nil {
			_ = s.close(time.Second) // the first error counts
		}
	}
	if err != nil {
		l.set(nil, err)
		return nil, err
	}
	l.set(s, nil)
	return s, nil
}

func (l *link) set(s *session, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if (s == nil) != (l.current == nil) {
		l.since = time.Now()
	}
	l.current, l.last = s, err
	close(l.changed)
	l.changed = make(chan struct{})
}

// keep keeps the connection open until ctx is done. s is the present connection, or nil. It returns the last one, which may be nil.
func (l *link) keep(ctx context.Context, s *session) *session {
	defer close(l.ended)
	for attempt := 1; ; attempt++ {
		if s != nil {
			select {
			case <-s.lost:
			case <-ctx.Done():
				return s
			}
			l.set(nil, s.why)
			l.say(s.why)
			attempt = 1
		}
		var err error
		if s, err = l.open(ctx); err == nil {
			l.say(nil)
			continue
		}
		if ctx.Err() != nil {
			return nil
		}
		l.say(err)
		if backoff.Wait(ctx, backoff.Jitter(backoff.Exponential(attempt, firstPause, longestPause))) != nil {
			return nil
		}
	}
}

// wait returns the connection as soon as there is one.
func (l *link) wait(ctx context.Context) (*session, error) {
	for {
		s, changed, last := l.state()
		if s != nil {
			return s, nil
		}
		select {
		case <-changed:
		case <-l.ended:
			return nil, errors.New("this process has closed the connection")
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), last)
		}
	}
}

func (l *link) state() (*session, <-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current != nil {
		select {
		case <-l.current.lost:
			return nil, l.changed, l.current.why
		default:
		}
	}
	return l.current, l.changed, l.last
}

// connection describes the link as [messaging.ConnectedReceiver] does.
func (l *link) connection() messaging.Connection {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := messaging.Connection{Parts: 1, Since: l.since}
	if l.current == nil {
		c.Away, c.Err = 1, l.last
	}
	return c
}
