package envelope

import (
	"context"
	"errors"

	"github.com/oncebox/oncebox/event"
)

// errSeveral: while several messages are handled at once, an event without a tenant would silently go to the default
// tenant, which may be the wrong one.
var errSeveral = errors.New("several messages are handled at once, so the tenant of the event is unknown: " +
	"emit it with the context that messaging.NewContext returns for one of them (uow.FromContext, Unit.Save), or set the tenant: " +
	"event.WithTenant, event.WithTenantID")

type severalKey struct{}

// ForSeveral returns a context for handling several messages at once. An event that is emitted with it needs an
// explicit tenant, or the context of its message.
func ForSeveral(ctx context.Context) context.Context {
	return context.WithValue(ctx, severalKey{}, true)
}

// ambiguous reports whether it is unknown to which of several messages, and so to which tenant, the event belongs.
func ambiguous(ctx context.Context, env *event.Envelope) bool {
	return ctx.Value(severalKey{}) != nil && env.TenantID == "" && event.TenantFrom(ctx) == "" &&
		event.MetadataFrom(ctx)[event.CausationID] == "" // the context of a single message has it, even if the message has no tenant
}
