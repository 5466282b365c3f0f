package messaging

import (
	"context"
	"errors"
	"fmt"

	"github.com/oncebox/oncebox/event"
)

// Direct returns a publisher that hands every message to h, in this process and without a broker. A message counts as
// published once h returned nil, so it is the outbox that retries it, keeps its order and makes a dead letter of it.
//
// What h returns for a message is what Publish reports for it. After a failure the later messages of its key in the
// same call are not handed over and reported as [ErrBehind].
func Direct(h Handler) Publisher { return direct{h} }

type direct struct{ handler Handler }

func (d direct) Publish(ctx context.Context, msgs []event.Envelope) error {
	failed := map[int]error{}
	stuck := map[string]bool{}
	for i := range msgs {
		m := NewMessage(msgs[i], 1, nil)
		// The outbox keeps order per ordering key and a Publisher per routing key. The two differ when the sender set one.
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
		// The message was not sent. ErrUnknown is used because it costs no attempt and says nothing about other messages.
		return fmt.Errorf("%w: the message was not sent: %w", ErrUnknown, context.Cause(ctx))
	}
	err := call(NewContext(ctx, m), d.handler, m)
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		// The caller went away in the middle. That is not the message's fault, so it must not cost it an attempt.
		return fmt.Errorf("%w: the caller's context was cancelled while the handler ran: %w", ErrUnknown, err)
	}
	return err
}
