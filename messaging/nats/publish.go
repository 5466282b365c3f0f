package nats

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/nats/internal/binding"
	"github.com/oncebox/oncebox/messaging/nats/internal/session"
	"github.com/oncebox/oncebox/messaging/nats/internal/streams"
	"github.com/oncebox/oncebox/messaging/receipts"
)

// Publish implements [messaging.Publisher]. Topics are sent side by side. A call takes no longer than Config.PublishTimeout, whatever ctx allows. While
// the connection is lost it waits for the next one.
func (b *Broker) Publish(ctx context.Context, msgs []event.Envelope) error {
	ctx, leave, err := b.calls.Begin(ctx, b.open, "nats: publish", b.cfg.PublishTimeout)
	if err != nil {
		return err
	}
	defer leave()
	return b.telemetry.Instruments().Topics(ctx, msgs, b.publishTopic)
}

// publishTopic sends the messages at these indexes, which belong to one topic.
func (b *Broker) publishTopic(ctx context.Context, topic string, msgs []event.Envelope, indexes []int) map[int]error {
	err := b.start.Wait(ctx, "publish")
	if err == nil {
		_, err = b.session.Wait(ctx)
	}
	if err != nil {
		return adapters.All(indexes, err)
	}
	s, err := b.keeper.Open(ctx, topic)
	if err != nil {
		return adapters.All(indexes, noStream(topic, err))
	}
	window := receipts.Window{
		InFlight: b.cfg.InFlight,
		// The server may refuse a message and store the next one, for example when there is room only for the smaller one.
		Holds:  func(int) bool { return true },
		Breaks: session.IsCut,
	}
	var encoder binding.Encoder
	sent := make([]uint64, 0, len(indexes))
	failed, _ := window.Publish(ctx, msgs, indexes, func(_ context.Context, i int, receipt func(error)) error {
		m, err := encoder.Encode(&msgs[i], s.Name, s.Subject(&msgs[i]))
		if err != nil {
			receipt(err)
			return nil
		}
		sent = append(sent, b.session.Publish(m, func(err error) { receipt(b.published(s, len(msgs[i].Payload), err)) }))
		return nil
	})
	b.session.Forget(sent)
	return failed
}

// published classifies the answer to a message. A stream that does not answer may be gone: it is looked for at the next call.
func (b *Broker) published(s *streams.Stream, payload int, err error) error {
	if errors.Is(err, jetstream.ErrNoStreamResponse) {
		b.keeper.Forget(s.Topic)
	}
	if err = classify(s.Topic, err); messaging.IsPermanent(err) {
		return fmt.Errorf("%w: its payload has %d bytes; with the headers max_payload of the server allows %d, and max_msg_size of the stream %s %d, "+
			"where -1 is no limit", err, payload, b.session.Conn.MaxPayload(), s.Name, s.Handle.CachedInfo().Config.MaxMsgSize)
	}
	return err
}

// noStream returns the error of a message whose stream cannot be used. Nothing was sent.
func noStream(topic string, err error) error {
	switch {
	case messaging.IsPermanent(err):
		return err
	case lasts(err):
		return &messaging.TopicError{Topic: topic, Err: fmt.Errorf("nats: %w", err)}
	}
	return classify(topic, err)
}
