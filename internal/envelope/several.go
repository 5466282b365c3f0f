package envelope

import (
	"context"
	"errors"

	"github.com/oncebox/oncebox/event"
)

// errSeveral is returned because the event would otherwise silently go to the service's default tenant, which may be the wrong one.
var errSeveral = errors.New("several messages are handled at once, and it is not said whose tenant the event has: " +
	"emit it with the context that messaging.NewContext returns for one of them (uow.FromContext, Unit.Save), or name it: " +
	"event.WithTenant, event.WithTenantID")

type severalKey struct{}

// ForSeveral returns a context for work on several messages at once: an event that is emitted under it needs an explicit tenant, or the context of
// its message.
func ForSeveral(ctx context.Context) context.Context {
	return context.WithValue(ctx, severalKey{}, true)
}

// ambiguous reports whether the tenant of the event is not known.
func ambiguous(ctx context.Context, env *event.Envelope) bool {
	return ctx.Value(severalKey{}) != nil && env.TenantID == "" && event.TenantFrom(ctx) == "" &&
		event.MetadataFrom(ctx)[event.CausationID] == "" // the context of a message has it, also if that has no tenant
}
