package event

import (
	"context"
	"maps"
)

// Keys of [Metadata] that the framework uses. At the broker they have names of their own; any other key is sent as "meta-<key>".
const (
	CorrelationID = "correlation_id" // equal for everything that one request has caused
	CausationID   = "causation_id"   // id of the message or request that has directly caused this event
	TraceParent   = "traceparent"    // W3C Trace Context
	TraceState    = "tracestate"     // W3C Trace Context
)

// DeadLetterOf is the key of [Metadata] in an event that announces a dead letter (outbox.Config.OnDead, inbox.Config.OnDead), or that a handler of
// such an event has caused. Its value is the id of the first dead letter. If an event with this key becomes a dead letter itself, that is not
// announced: otherwise an announcement that cannot be delivered would cause the next one, without end. At the broker it is "meta-dead_letter_of".
const DeadLetterOf = "dead_letter_of"

// Metadata has the entries that travel with an event beside its payload.
type Metadata map[string]string

// Clone returns a copy that the caller may change. It is never nil.
func (m Metadata) Clone() Metadata {
	c := make(Metadata, len(m))
	maps.Copy(c, m)
	return c
}

type (
	tenantKey   struct{}
	metadataKey struct{}
)

// WithTenant returns a context whose events belong to the tenant.
func WithTenant(ctx context.Context, id string) context.Context {
	return &tenantContext{ctx, id}
}

// tenantContext is a context with a tenant. context.WithValue would need a second object, for the text.
type tenantContext struct {
	context.Context //nolint:containedctx // it is a context

	id string
}

// Value returns the place of the tenant, and the values of the context around it.
func (t *tenantContext) Value(key any) any {
	if key == (tenantKey{}) {
		return &t.id
	}
	return t.Context.Value(key)
}

// TenantFrom returns the tenant of the context, "" if it has none.
func TenantFrom(ctx context.Context) string {
	if id, ok := ctx.Value(tenantKey{}).(*string); ok {
		return *id
	}
	return ""
}

// WithMetadata returns a context whose events carry md in addition to the metadata that ctx has already. Equal keys
// are overwritten. md is copied.
func WithMetadata(ctx context.Context, md Metadata) context.Context {
	merged := MetadataFrom(ctx)
	maps.Copy(merged, md)
	return context.WithValue(ctx, metadataKey{}, merged)
}

// MetadataFrom returns a copy of the context's metadata. It is never nil.
func MetadataFrom(ctx context.Context) Metadata {
	md, _ := ctx.Value(metadataKey{}).(Metadata)
	return md.Clone()
}
