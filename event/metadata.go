package event

import (
	"context"
	"maps"
)

// Keys of [Metadata] that the framework knows. They have names of their own on the wire; every other key travels as
// "meta-<key>".
const (
	CorrelationID = "correlation_id" // the whole conversation: equal for all that one request caused
	CausationID   = "causation_id"   // the message or request that caused this event directly
	TraceParent   = "traceparent"    // W3C Trace Context
	TraceState    = "tracestate"     // W3C Trace Context
)

// DeadLetterOf is the key of [Metadata] in an event that announces a dead letter (outbox.Config.OnDead, inbox.Config.OnDead), or that a
// handler of such an event caused. It holds the id of what died first. Such an event is not announced when it becomes a dead letter
// itself: else an announcement that cannot be delivered would cause the next one, without end. It travels as "meta-dead_letter_of".
const DeadLetterOf = "dead_letter_of"

// Metadata is what travels with an event beside its payload.
type Metadata map[string]string

// Clone returns a copy that can be changed. It is never nil.
func (m Metadata) Clone() Metadata {
	c := make(Metadata, len(m))
	maps.Copy(c, m)
	return c
}

type (
	tenantKey   struct{}
	metadataKey struct{}
)

// WithTenant returns a context in which events belong to the tenant.
func WithTenant(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, tenantKey{}, id)
}

// TenantFrom returns the tenant of the context, "" if it has none.
func TenantFrom(ctx context.Context) string {
	id, _ := ctx.Value(tenantKey{}).(string)
	return id
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
