package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync/atomic"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/kafka/internal/topics"
)

// Publish implements [messaging.Publisher]. A call takes no longer than Config.PublishTimeout, whatever ctx allows.
func (b *Broker) Publish(ctx context.Context, msgs []event.Envelope) error {
	if len(msgs) == 0 {
		return nil
	}
	ctx, leave, err := b.enter(ctx, "publish", b.cfg.PublishTimeout)
	if err != nil {
		return err
	}
	defer leave()
	return b.telemetry.Instruments().Call(ctx, msgs, func(ctx context.Context) map[int]error { return b.publish(ctx, msgs) })
}

// publish returns the errors by the index in msgs.
func (b *Broker) publish(ctx context.Context, msgs []event.Envelope) map[int]error {
	if err := b.start.Wait(ctx, "publish"); err != nil {
		return all(msgs, err)
	}
	if ctx.Err() != nil {
		return all(msgs, fmt.Errorf("%w: the message was not sent: %w", messaging.ErrUnknown, context.Cause(ctx)))
	}
	of, indexes, failed := b.resolve(ctx, msgs)
	if len(indexes) == 0 {
		return failed
	}
	p, err := b.producers.take(ctx)
	if err != nil {
		for _, i := range indexes {
			failed[i] = err
		}
		return failed
	}
	f := newFlight(p, of, msgs)
	refused, sound := f.run(ctx, indexes)
	if sound {
		b.producers.giveBack(p)
	} else {
		b.producers.retire(p)
		if !p.wrote.Load() { // nothing has left this process, and after the end of the producer nothing will
			for i, err := range refused {
				if errors.Is(err, messaging.ErrUnknown) {
					refused[i] = fmt.Errorf("%w: kafka: nothing was sent to topic %s: %w", messaging.ErrBrokerDown, msgs[i].Topic, context.Cause(ctx))
				}
			}
		}
	}
	maps.Copy(failed, refused)
	return failed
}

// resolve looks up the topics of messages. It returns the indexes of the messages that can be sent, and the errors of the others.
func (b *Broker) resolve(ctx context.Context, msgs []event.Envelope) (of map[string]*topic, indexes []int, failed map[int]error) {
	of, failed = map[string]*topic{}, map[int]error{}
	errs := map[string]error{}
	for i := range msgs {
		name := msgs[i].Topic
		if of[name] == nil && errs[name] == nil {
			of[name], errs[name] = b.topic(ctx, name)
		}
		if err := errs[name]; err != nil {
			failed[i] = err
			continue
		}
		indexes = append(indexes, i)
	}
	return of, indexes, failed
}

// all returns one error for all messages of a call.
func all(msgs []event.Envelope, err error) map[int]error {
	failed := make(map[int]error, len(msgs))
	for i := range msgs {
		failed[i] = err
	}
	return failed
}

// topic is what the publisher knows of a topic.
type topic struct {
	name, full string
	limit      int         // the size of the largest message
	careful    atomic.Bool // the broker has refused a batch; each message is sent by itself, to find which one it refuses
}

// topic returns a topic that exists; it is looked up, and made if Config.Declare allows that, at its first use. A topic that is deleted later is
// not made again by publishing: somebody had a reason to delete it.
func (b *Broker) topic(ctx context.Context, name string) (*topic, error) {
	if known, ok := b.topics.Load(name); ok {
		return known.(*topic), nil //nolint:forcetypeassert // it holds nothing else
	}
	if err := b.cfg.names().ValidateTopic(name); err != nil {
		return nil, messaging.Permanent(fmt.Errorf("kafka: topic %q: %w", name, err))
	}
	if err := b.keeper.Ensure(ctx, name); err != nil {
		return nil, err
	}
	t := &topic{name: name, full: b.cfg.names().FullName(name), limit: b.cfg.MaxMessageBytes}
	// Without the right to read the settings, the broker refuses what is too large.
	if settings, err := b.keeper.Settings(ctx, name); err == nil {
		if limit, err := strconv.Atoi(settings[topics.MaxMessageBytes]); err == nil {
			t.limit = min(t.limit, limit)
		}
	}
	known, _ := b.topics.LoadOrStore(name, t)
	return known.(*topic), nil //nolint:forcetypeassert // it holds nothing else
}

// batchBytes returns the size of the largest batch of a topic.
func (b *Broker) batchBytes(full string) int32 {
	limit := b.cfg.MaxMessageBytes
	b.topics.Range(func(_, known any) bool {
		if t := known.(*topic); t.full == full { //nolint:forcetypeassert // it holds nothing else
			limit = t.limit
		}
		return true
	})
	return int32(max(limit, 512)) //nolint:gosec // Validate limits it
}
