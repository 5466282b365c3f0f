package envelope

import (
	"context"
	"errors"

	"github.com/oncebox/oncebox/event"
)

// errSeveral: with the service's default tenant the event would go to the wrong one without a word.
var errSeveral = errors.New("several messages are handled at once, and it is not said whose tenant the event has: " +
	"emit it with the context that messaging.NewContext returns for one of them (uow.FromContext, Unit.Save), or name it: " +
	"event.WithTenant, event.WithTenantID")

type severalKey struct{}

// ForSeveral returns a context for work that is done for several messages at once: an event that is emitted under it has to say
// which tenant or which message it belongs to.
func ForSeveral(ctx context.Context) context.Context {
	return context.WithValue(ctx, severalKey{}, true)
}

// ambiguous reports whether nothing says whose tenant the event has.
func ambiguous(ctx context.Context, env *event.Envelope) bool {
	return ctx.Value(severalKey{}) != nil && env.TenantID == "" && event.TenantFrom(ctx) == "" &&
		event.MetadataFrom(ctx)[event.CausationID] == "" // the context of a message has it, also if that has no tenant
}
