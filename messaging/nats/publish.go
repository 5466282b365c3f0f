package nats

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/nats/internal/binding"
	"github.com/oncebox/oncebox/messaging/nats/internal/session"
	"github.com/oncebox/oncebox/messaging/nats/internal/streams"
	"github.com/oncebox/oncebox/messaging/receipts"
)

// Publish implements [messaging.Publisher]. A call takes no longer than Config.PublishTimeout, whatever ctx allows. While the connection is lost it waits
// for the next one. The client may still read messages that Publish reports as [messaging.ErrUnknown]: do not change their payloads.
func (b *Broker) Publish(ctx context.Context, msgs []event.Envelope) error {
	if len(msgs) == 0 {
		return nil
	}
	ctx, leave, err := b.calls.Begin(ctx, b.open, "nats: publish", b.cfg.PublishTimeout)
	if err != nil {
		return err
	}
	defer leave()
	return b.telemetry.Instruments().Call(ctx, msgs, func(ctx context.Context) map[int]error { return b.publish(ctx, msgs) })
}

// publish returns the errors by the index in msgs.
func (b *Broker) publish(ctx context.Context, msgs []event.Envelope) map[int]error {
	err := b.start.Wait(ctx, "publish")
	if err == nil {
		_, err = b.session.Wait(ctx)
	}
	if err != nil {
		failed := map[int]error{}
		for i := range msgs {
			failed[i] = err
		}
		return failed
	}
	opened, failed := b.streamsOf(ctx, msgs)
	var good []int
	for i := range msgs {
		if failed[i] == nil {
			good = append(good, i)
		}
	}
	if len(good) == 0 {
		return failed
	}
	sent := make([]*natsclient.Msg, 0, len(good))
	window := receipts.Window{
		InFlight: b.cfg.InFlight,
		// The server may refuse a message and store the next one, for example when there is room only for the smaller one.
		Holds:  func(int) bool { return true },
		Breaks: session.IsCut,
	}
	errs, _ := window.Publish(ctx, msgs, good, func(_ context.Context, i int, receipt func(error)) error {
		s := opened[msgs[i].Topic]
		m, err := binding.Encode(&msgs[i], s.Name, b.Subject(s.Topic, streams.PartitionOf(&msgs[i], s.Partitions)))
		if err != nil {
			receipt(err)
			return nil
		}
		sent = append(sent, m)
		b.receipts.expect(m, func(err error) { receipt(b.published(s, err)) })
		if _, err := b.session.JS.PublishMsgAsync(m); err != nil {
			b.receipts.answer(m, err)
		}
		return nil
	})
	b.receipts.forget(sent)
	maps.Copy(failed, errs)
	return failed
}

// published classifies the answer to a message. A stream that does not answer may be gone: it is looked for at the next call.
func (b *Broker) published(s *streams.Stream, err error) error {
	if errors.Is(err, jetstream.ErrNoStreamResponse) {
		b.keeper.Forget(s.Topic)
	}
	return classify(s.Topic, err)
}

// streamsOf returns the streams of the messages by topic, and the errors of messages whose topic has none, by their index. Topics are opened side by
// side, so that a topic that hangs does not delay the others.
func (b *Broker) streamsOf(ctx context.Context, msgs []event.Envelope) (opened map[string]*streams.Stream, failed map[int]error) {
	opened, failed = map[string]*streams.Stream{}, map[int]error{}
	errs := map[string]error{}
	var mu sync.Mutex
	var opening sync.WaitGroup
	for i := range msgs {
		topic := msgs[i].Topic
		mu.Lock()
		_, known := opened[topic]
		if !known {
			opened[topic] = nil
		}
		mu.Unlock()
		if known {
			continue
		}
		opening.Go(func() {
			s, err := b.keeper.Open(ctx, topic)
			mu.Lock()
			defer mu.Unlock()
			opened[topic], errs[topic] = s, err
		})
	}
	opening.Wait()
	for i := range msgs {
		if err := errs[msgs[i].Topic]; err != nil {
			failed[i] = noStream(msgs[i].Topic, err)
		}
	}
	return opened, failed
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
