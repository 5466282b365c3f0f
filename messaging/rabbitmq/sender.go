package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/wire"
)

// sender is a channel that publishes. It belongs to one topic of one call of Publish at a time, so a refusal, with which the broker closes the
// channel, disturbs no other topic.
//
// A receipt is a confirm of the broker, and not all confirms mean that the message was stored. The broker confirms a message that no queue gets, too,
// and returns it just before. And when a channel closes, the client reports all its open messages as refused.
type sender struct {
	session  *session
	channel  *amqp.Channel
	exchange string

	outgoing chan outgoing
	closed   chan *amqp.Error

	mu       sync.Mutex
	returns  chan amqp.Return // has room for a return of each message under way: the client drops what finds no room
	returned map[string]int   // how many messages with this id
	refusal  *amqp.Error
}

// outgoing is a message on its way to the broker.
type outgoing struct {
	topic   string
	key     string // the routing key
	id      string // of the event, by which a returned message is recognized
	message amqp.Publishing
	receipt func(error)
}

// newSender opens a channel. inFlight is the largest number of messages without a receipt.
func newSender(ctx context.Context, s *session, exchange string, inFlight int) (*sender, error) {
	ch, err := s.channel(ctx, func(ch *amqp.Channel) error { return ch.Confirm(false) })
	if err != nil {
		return nil, err
	}
	out := &sender{
		session: s, channel: ch, exchange: exchange, outgoing: make(chan outgoing), returned: map[string]int{},
		closed:  ch.NotifyClose(make(chan *amqp.Error, 1)),
		returns: ch.NotifyReturn(make(chan amqp.Return, inFlight)),
	}
	go out.write()
	return out, nil
}

// send hands a message over. It returns early when ctx is done: a broker that reads nothing makes the client wait, with a message that it may still
// send.
func (s *sender) send(ctx context.Context, o outgoing) error {
	select {
	case s.outgoing <- o:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// retire ends the sender. Nothing is sent after that but for a message that is just being written.
func (s *sender) retire() { close(s.outgoing) }

// isSound reports whether the channel can be used for another call.
func (s *sender) isSound() bool { return !s.channel.IsClosed() }

// write publishes one message after the other, because the client's call cannot be cancelled. It closes the channel at the end: AMQP
// forbids a close between the frames of a message.
func (s *sender) write() {
	defer func() { _ = s.channel.Close() }() // the broker may not answer
	for o := range s.outgoing {
		confirmed, err := s.channel.PublishWithDeferredConfirm(s.exchange, o.key, true, false, o.message)
		if err != nil {
			o.receipt(s.unsent(o, err))
			continue
		}
		go func() {
			<-confirmed.Done()
			o.receipt(s.outcome(o, confirmed.Acked()))
		}()
	}
}

// unsent returns the error of a message that the client did not take.
func (s *sender) unsent(o outgoing, err error) error {
	if refusal := s.why(); refusal != nil {
		return classify(o.topic, refusal, len(o.message.Body))
	}
	if errors.Is(err, amqp.ErrClosed) {
		return fmt.Errorf("%w: rabbitmq: the connection was lost", messaging.ErrUnknown)
	}
	return fmt.Errorf("%w: rabbitmq: %w", messaging.ErrUnknown, err)
}

// outcome returns the error of a message that has a receipt, nil if it is stored.
func (s *sender) outcome(o outgoing, acked bool) error {
	switch {
	case acked && s.isReturned(o.id):
		return topicError(o.topic, errNobody)
	case acked:
		return nil
	case s.channel.IsClosed():
		return classify(o.topic, s.why(), len(o.message.Body))
	default:
		return topicError(o.topic, errNacked)
	}
}

// isReturned reports whether the broker has returned a message. It does so before it confirms the message, so the return is in the channel.
func (s *sender) isReturned(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		select {
		case r, ok := <-s.returns:
			if !ok { // the channel was closed
				return s.takeReturned(id)
			}
			of, _ := r.Headers[prefix+wire.ID].(string)
			s.returned[of]++
			continue
		default:
		}
		return s.takeReturned(id)
	}
}

func (s *sender) takeReturned(id string) bool {
	n := s.returned[id]
	if n > 1 {
		s.returned[id] = n - 1
	} else {
		delete(s.returned, id)
	}
	return n > 0
}

// why returns the reason with which the broker has closed the channel, nil if it did not, or has closed the connection.
func (s *sender) why() *amqp.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case err := <-s.closed:
		if err != nil {
			s.refusal = err
		}
	default:
	}
	if s.session.conn.IsClosed() {
		return nil
	}
	return s.refusal
}
