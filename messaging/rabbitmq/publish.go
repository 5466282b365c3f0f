package rabbitmq

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/receipts"
)

// maxSenders bounds the channels that publish at once. Brokers allow 2047 channels for a connection.
const maxSenders = 64

// Publish implements [messaging.Publisher]. Topics are sent side by side. A call takes no longer than Config.PublishTimeout, whatever ctx allows. The
// client may still read messages that Publish reports as [messaging.ErrUnknown]: do not change their payloads.
func (b *Broker) Publish(ctx context.Context, msgs []event.Envelope) error {
	ctx, leave, err := b.enter(ctx, "publish", b.cfg.PublishTimeout)
	if err != nil {
		return err
	}
	defer leave()
	return b.telemetry.Instruments().Topics(ctx, msgs, b.publishTopic)
}

// publishTopic sends the messages at these indexes, which belong to one topic.
func (b *Broker) publishTopic(ctx context.Context, topic string, msgs []event.Envelope, indexes []int) map[int]error {
	s, err := b.sender(ctx, topic)
	if err != nil {
		return adapters.All(indexes, err)
	}
	// A message that is refused may not let the next one of its key pass, and the broker has no way to refuse both: so each waits for the receipt of
	// the one before.
	window := receipts.Window{InFlight: b.cfg.InFlight, Holds: func(int) bool { return true }}
	failed, sound := window.Publish(ctx, msgs, indexes, func(ctx context.Context, i int, receipt func(error)) error {
		message := messageOf(&msgs[i])
		if err := b.fits(s, &message); err != nil {
			receipt(err)
			return nil
		}
		lane := laneOf(msgs[i].RoutingKey, msgs[i].ID)
		return s.send(ctx, outgoing{topic: topic, key: laneKey(topic, lane), id: msgs[i].ID, message: message, receipt: receipt})
	})
	b.giveBack(s, sound)
	for _, err := range failed {
		if errors.Is(err, errNobody) || isCode(err, amqp.NotFound) {
			b.doubt(topic)
		}
	}
	return failed
}

// fits refuses for good what the broker would answer by closing the channel, or the connection.
func (b *Broker) fits(s *sender, m *amqp.Publishing) error {
	if n := len(m.Body); n > b.cfg.MaxMessageBytes {
		return messaging.Permanent(fmt.Errorf("rabbitmq: the payload has %d bytes, at most %d are allowed (Config.MaxMessageBytes, "+
			"ONCEBOX_RABBITMQ_MAX_MESSAGE_BYTES)", n, b.cfg.MaxMessageBytes))
	}
	frame := s.session.conn.Config.FrameSize
	if n := headerSize(m); frame > 0 && n > frame {
		return messaging.Permanent(fmt.Errorf("rabbitmq: metadata and attributes take %d bytes, which have to fit into one frame, and frame_max of the "+
			"broker is %d: raise it (rabbitmq.conf), or send less metadata", n, frame))
	}
	return nil
}

// sender returns a channel that only the caller uses, until it gives it back. The error is that of all messages of the topic.
func (b *Broker) sender(ctx context.Context, topic string) (*sender, error) {
	if err := b.topology.names.validateTopic(topic); err != nil {
		return nil, messaging.Permanent(fmt.Errorf("rabbitmq: topic %q: %w", topic, err))
	}
	if ctx.Err() != nil {
		return nil, notHandedOver(ctx)
	}
	s, err := b.wait(ctx, b.publisher, "publish")
	if err == nil {
		err = s.admitted(ctx)
	}
	if err == nil {
		err = b.remake(ctx, topic)
	}
	if err != nil {
		return nil, b.unsent(ctx, topic, err)
	}
	select {
	case b.senders <- struct{}{}:
	case <-ctx.Done():
		return nil, notHandedOver(ctx)
	}
	if idle := s.takeIdle(); idle != nil {
		return idle, nil
	}
	made, err := newSender(ctx, s, b.cfg.Exchange, b.cfg.InFlight)
	if err != nil {
		<-b.senders
		return nil, b.unsent(ctx, topic, err)
	}
	return made, nil
}

// giveBack ends the use of a sender. It is kept for the next call if it is sound.
func (b *Broker) giveBack(s *sender, sound bool) {
	if sound && s.isSound() {
		s.session.putIdle(s)
	} else {
		s.retire()
	}
	<-b.senders
}

// unsent returns the error of messages that were not handed over.
func (b *Broker) unsent(ctx context.Context, topic string, err error) error {
	switch {
	case errors.Is(context.Cause(ctx), context.Canceled):
		return notHandedOver(ctx)
	case errors.Is(err, messaging.ErrBrokerDown): // also if the broker has refused the connection
		return err
	case isRefusal(err):
		return topicError(topic, err)
	default:
		return b.down("publish", err)
	}
}

// notHandedOver returns the error of a message that was not sent because the caller went away: no attempt is spent.
func notHandedOver(ctx context.Context) error {
	return fmt.Errorf("%w: the message was not sent: %w", messaging.ErrUnknown, context.Cause(ctx))
}

// doubt notes that the subscriptions of a topic may be gone.
func (b *Broker) doubt(topic string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.doubted[topic] = true
}

// remake makes the subscriptions of a doubted topic that this process knows again, and the topic exchange. So a service publishes again after somebody
// has deleted them.
func (b *Broker) remake(ctx context.Context, topic string) error {
	b.mu.Lock()
	doubted := b.doubted[topic]
	delete(b.doubted, topic)
	known := b.known(topic)
	b.mu.Unlock()
	if !doubted || !b.topology.make {
		return nil
	}
	s, err := b.consumer.wait(ctx)
	if err != nil {
		return err
	}
	err = s.with(ctx, b.topology.makeTopicExchange)
	for _, sub := range known {
		if err == nil {
			err = b.topology.declare(ctx, s, sub)
		}
	}
	if err != nil {
		b.doubt(topic)
	}
	return err
}

// known returns the subscriptions of a topic that this process has declared. The caller holds the mutex.
func (b *Broker) known(topic string) (known []messaging.Subscription) {
	for key, s := range b.declared {
		if key.topic == topic {
			known = append(known, s)
		}
	}
	return known
}
