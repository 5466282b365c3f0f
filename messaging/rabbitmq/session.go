package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// session is one connection to the broker, until it is lost.
type session struct {
	conn *amqp.Connection
	link *patientConn
	lost chan struct{} // closed when the connection has ended; why is set then
	why  error

	mu      sync.Mutex
	blocked *block
	idle    []*sender
}

// block is the time in which the broker takes no messages, because it runs out of memory or disk space.
type block struct {
	reason string
	over   chan struct{} // closed at its end
}

func newSession(conn *amqp.Connection, link *patientConn) *session {
	s := &session{conn: conn, link: link, lost: make(chan struct{})}
	closed := conn.NotifyClose(make(chan *amqp.Error, 1))
	blocked := conn.NotifyBlocked(make(chan amqp.Blocking, 16))
	go s.watch(closed, blocked)
	return s
}

// watch follows what the broker says about the connection as a whole.
func (s *session) watch(closed <-chan *amqp.Error, blocked <-chan amqp.Blocking) {
	for {
		select {
		case b, ok := <-blocked:
			if !ok {
				blocked = nil
				continue
			}
			s.setBlocked(b)
		case err := <-closed:
			s.why = errors.New("the connection was closed")
			if err != nil {
				s.why = err
			}
			s.setBlocked(amqp.Blocking{})
			close(s.lost)
			s.retireIdle()
			return
		}
	}
}

func (s *session) setBlocked(b amqp.Blocking) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case b.Active && s.blocked == nil:
		s.blocked = &block{reason: b.Reason, over: make(chan struct{})}
	case !b.Active && s.blocked != nil:
		close(s.blocked.over)
		s.blocked = nil
	}
}

// admitted waits until the broker takes messages.
func (s *session) admitted(ctx context.Context) error {
	for {
		s.mu.Lock()
		b := s.blocked
		s.mu.Unlock()
		if b == nil {
			return nil
		}
		select {
		case <-b.over:
		case <-ctx.Done():
			return fmt.Errorf("RabbitMQ takes no messages until an alarm is over (%s); rabbitmqctl status shows it: %w", b.reason, context.Cause(ctx))
		}
	}
}

// major returns the major version of the broker, 0 if it does not say.
func (s *session) major() int {
	version, _ := s.conn.Properties["version"].(string)
	first, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(first)
	if err != nil {
		return 0
	}
	return n
}

// channel opens a channel and prepares it. The client's calls cannot be cancelled: when ctx is done, it returns without them, and the channel is
// closed when they have returned. Not before, because the client mixes up the answers to two calls of one channel.
func (s *session) channel(ctx context.Context, prepare func(ch *amqp.Channel) error) (*amqp.Channel, error) {
	type opened struct {
		ch  *amqp.Channel
		err error
	}
	done := make(chan opened)
	go func() {
		ch, err := s.conn.Channel()
		if err == nil {
			if err = prepare(ch); err != nil {
				_ = ch.Close() // the first error counts
			}
		}
		select {
		case done <- opened{ch, err}:
		case <-ctx.Done():
			if err == nil {
				_ = ch.Close() // it comes too late
			}
		}
	}()
	select {
	case o := <-done:
		return o.ch, o.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// with calls do with a channel of its own, because the broker closes a channel at each refusal.
func (s *session) with(ctx context.Context, do func(ch *amqp.Channel) error) error {
	_, err := ask(ctx, s, func(ch *amqp.Channel) (struct{}, error) { return struct{}{}, do(ch) })
	return err
}

// ask is session.with for an answer. When ctx is done it does not wait for do.
func ask[T any](ctx context.Context, s *session, do func(ch *amqp.Channel) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		var a answer
		ch, err := s.conn.Channel()
		if a.err = err; err == nil {
			a.value, a.err = do(ch)
			_ = ch.Close() // an error means that it is closed already
		}
		done <- a
	}()
	select {
	case a := <-done:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// close ends the connection in good order if the broker answers within the limit. During an alarm it does not read what a publisher says.
func (s *session) close(limit time.Duration) error {
	s.mu.Lock()
	isBlocked := s.blocked != nil
	s.mu.Unlock()
	if isBlocked {
		s.link.sever()
		return nil
	}
	err := s.conn.CloseDeadline(time.Now().Add(limit))
	if errors.Is(err, amqp.ErrClosed) {
		err = nil
	}
	return err
}

// takeIdle returns a sender that no call uses, nil if there is none.
func (s *session) takeIdle() *sender {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.idle) > 0 {
		last := len(s.idle) - 1
		idle := s.idle[last]
		s.idle = s.idle[:last]
		if idle.isSound() {
			return idle
		}
		idle.retire()
	}
	return nil
}

func (s *session) putIdle(idle *sender) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.lost:
		idle.retire()
	default:
		s.idle = append(s.idle, idle)
	}
}

// retireIdle is called when the connection was lost.
func (s *session) retireIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, idle := range s.idle {
		idle.retire()
	}
	s.idle = nil
}
