package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
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
			if !errors.Is(err, messaging.ErrUnknown) {
				failed[i] = b.keeper.Sorted("make a producer", messaging.Subscription{Topic: msgs[i].Topic}, err)
			}
		}
		return failed
	}
	f := newFlight(b.keeper, p, of, msgs)
	refused, sound := f.run(ctx, indexes)
	if sound {
		b.producers.giveBack(p)
	} else {
		b.producers.retire(p)
		if p.wrote.Load() == 0 { // nothing has left this process, and after the end of the producer nothing will
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
	errs, looked := map[string]error{}, false
	for i := range msgs {
		name := msgs[i].Topic
		if of[name] == nil && errs[name] == nil {
			of[name], errs[name] = b.topic(ctx, name)
		}
		if t := of[name]; t != nil && !looked && t.isSmaller(b.cfg.MaxMessageBytes, &msgs[i]) {
			looked = true
			t.stale.Store(true) // its limit may have been raised meanwhile
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
