package event

import "time"

// AddOption changes one envelope that is added by hand.
type AddOption func(*Envelope)

// WithID sets the id, for an event whose id was made elsewhere. Default: a new UUIDv7.
func WithID(id string) AddOption { return func(e *Envelope) { e.ID = id } }

// WithType sets the event's type. Default: that of an [Event], else the topic.
func WithType(name string) AddOption { return func(e *Envelope) { e.Type = name } }

// WithSchema sets the payload's schema. Default: the registered version of an [Event], else 1; no id.
func WithSchema(id string, version int) AddOption {
	return func(e *Envelope) { e.SchemaID, e.SchemaVersion = id, version }
}

// WithTenantID sets the tenant of this one event. Default: that of the context ([WithTenant]), else the configured one.
func WithTenantID(id string) AddOption { return func(e *Envelope) { e.TenantID = id } }

// WithAggregate says to which aggregate it happened, and thereby gives the event its order. Version 0: unversioned.
func WithAggregate(kind, id string, version int64) AddOption {
	return func(e *Envelope) { e.AggregateType, e.AggregateID, e.AggregateVersion = kind, id, version }
}

// WithOrderingKey puts the event in order with all others of the tenant that have the same key, whatever their aggregates are:
// in the outbox, at the broker, whose message key it becomes, and at consumers. Default: the aggregate's order.
func WithOrderingKey(key string) AddOption {
	return func(e *Envelope) { e.Delivery.OrderingKey = key }
}

// WithRoutingKey sets the broker's message key. Default: the ordering key if one is set, else the aggregate id. Another key beside
// [WithOrderingKey] is refused: the broker would not keep the order.
func WithRoutingKey(key string) AddOption { return func(e *Envelope) { e.RoutingKey = key } }

// WithContentType sets the media type of a payload that is handed over as bytes. Default: application/octet-stream.
func WithContentType(mediaType string) AddOption {
	return func(e *Envelope) { e.ContentType = mediaType }
}

// WithHeader adds one entry to the metadata.
func WithHeader(key, value string) AddOption {
	return func(e *Envelope) {
		e.Metadata = e.Metadata.Clone()
		e.Metadata[key] = value
	}
}

// WithDedupKey makes the event a no-op if the tenant has announced one with this key before, in this unit of work or an
// earlier one: a producer that may run twice for one cause, such as a timer or an import, names the cause here. The key is
// taken with the commit, so that of two at once the second waits for the first. How long keys are remembered is
// outbox.Config.DedupRetention.
func WithDedupKey(key string) AddOption { return func(e *Envelope) { e.Delivery.DedupKey = key } }

// WithNotBefore delays the publication until t by the database's clock. A delayed event is in an order of its own, as a reminder should
// be: later events of its aggregate do not wait for it, in the outbox, at the broker or at consumers. It can be cancelled and moved
// until t, see outbox.Store.Delayed().Cancel. With [WithOrderingKey] it is in that order instead: what follows under the key waits until t.
func WithNotBefore(t time.Time) AddOption { return func(e *Envelope) { e.Delivery.NotBefore = t } }

// WithExpiry makes the event a dead letter if it was not published by t, by the database's clock. What follows it under its ordering
// key is published without it, unless projector.Config.BlockExpired is set.
func WithExpiry(t time.Time) AddOption { return func(e *Envelope) { e.Delivery.ExpiresAt = t } }

// WithMaxAttempts overrides the projector's maximum of attempts.
func WithMaxAttempts(n int) AddOption { return func(e *Envelope) { e.Delivery.MaxAttempts = n } }
