package messaging

import (
	"context"
	"errors"
	"fmt"

	"github.com/oncebox/oncebox/event"
)

// Direct returns a publisher that calls h for every message, in this process and without a broker. A message counts as published when h has returned
// nil. So the outbox tries a failed message again, keeps its order and makes a dead letter of it.
//
// Publish returns the errors of h. After a failure, later messages of the same key in the call are not handed to h and have the error [ErrBehind].
func Direct(h Handler) Publisher { return direct{h} }

type direct struct{ handler Handler }

func (d direct) Publish(ctx context.Context, msgs []event.Envelope) error {
	failed := map[int]error{}
	stuck := map[string]bool{}
	for i := range msgs {
		m := NewMessage(msgs[i], 1, nil)
		// The outbox keeps the order of an ordering key, a Publisher the order of a routing key. The keys differ if the sender has set
		// one, so both are held.
		keys := []string{m.OrderingKey(), m.Topic + "\n" + m.RoutingKey}
		if m.RoutingKey == "" {
			keys = keys[:1]
		}
		err := d.publish(ctx, m, keys, stuck)
		if err == nil {
			continue
		}
		failed[i] = err
		for _, key := range keys {
			stuck[key] = key != ""
		}
	}
	if len(failed) > 0 {
		return &PublishError{Failed: failed}
	}
	return nil
}

func (d direct) publish(ctx context.Context, m *Message, keys []string, stuck map[string]bool) error {
	for _, key := range keys {
		if stuck[key] {
			return ErrBehind
		}
	}
	if ctx.Err() != nil {
		// The message was not handed over. ErrUnknown costs no attempt and concerns no other message.
		return fmt.Errorf("%w: the message was not sent: %w", ErrUnknown, context.Cause(ctx))
	}
	err := call(NewContext(ctx, m), d.handler, m)
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		// The caller's context ended while the handler ran. That must not cost the message an attempt, so it is ErrUnknown.
		return fmt.Errorf("%w: the caller's context was cancelled while the handler ran: %w", ErrUnknown, err)
	}
	return err
}
