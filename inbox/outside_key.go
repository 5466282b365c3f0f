package inbox

import (
	"context"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/calls"
	"github.com/oncebox/oncebox/messaging"
)

// Key returns an idempotency key for calls to other systems: it is the same in every try of a message, in every process, for ever, and
// different for each consumer, tenant, source and message id. It has 32 letters and digits, so that it fits into an Idempotency-Key header.
// A handler that makes several calls needs a key for each: [Step] gives it.
//
// Key returns "" if ctx is not the context of a handler of this package. A [BatchFunc] passes the result of [messaging.NewContext] to get
// the key of one message.
func Key(ctx context.Context) string {
	consumer, ok := ctx.Value(consumerKey{}).(string)
	m, handling := messaging.FromContext(ctx)
	if !ok || !handling {
		return ""
	}
	return store.Identify(consumer, m).OutsideKey()
}

// stepKey is the key of one step of the message.
func (l *lease) stepKey(name string) string { return l.id.OutsideKey(name) }

type consumerKey struct{}

// named adds the name of the consumer to the context of a handler, and keeps unreadable messages from it.
type named struct {
	consumer string
	next     messaging.Handler
}

func (n named) Handle(ctx context.Context, m *messaging.Message) error {
	if err := messaging.Unreadable(m); err != nil {
		return err
	}
	return n.next.Handle(calls.Begin(context.WithValue(ctx, consumerKey{}, n.consumer)), m)
}
