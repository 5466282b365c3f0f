package inbox

import (
	"context"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/calls"
	"github.com/oncebox/oncebox/messaging"
)

// Key returns a key for what a handler tells others about the message it handles: the same in every try, in every process, for
// ever, and another one for each consumer, tenant, source and message id. It has 32 letters and digits, so that it fits into an
// Idempotency-Key header. A handler that makes several calls needs one for each: [Step] gives it.
//
// It is "" in a context that is not a handler's of this package. A [BatchFunc] gets it of each message by way of
// [messaging.NewContext].
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

// named tells a handler in its context whose it is, and spares it what cannot be read.
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
