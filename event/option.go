package event

import "time"

// AddOption changes the envelope of one event that is added without an aggregate.
type AddOption func(*Envelope)

// WithID sets the id, for an event whose id was made elsewhere. Default: a new UUIDv7.
func WithID(id string) AddOption { return func(e *Envelope) { e.ID = id } }

// WithType sets the event's type. Default: that of an [Event]; for a payload of bytes the topic.
func WithType(name string) AddOption { return func(e *Envelope) { e.Type = name } }

// WithSchema sets the payload's schema. Default: no id; the version is the registered one of an [Event], else 1.
func WithSchema(id string, version int) AddOption {
	return func(e *Envelope) { e.SchemaID, e.SchemaVersion = id, version }
}

// WithTenantID sets the tenant of this one event. Default: that of the context ([WithTenant]), else the configured one.
func WithTenantID(id string) AddOption { return func(e *Envelope) { e.TenantID = id } }

// WithAggregate sets the aggregate that the event is about, and so its order. version is the version of the aggregate after the event, as its row has it;
// 0 for something that has no versions.
func WithAggregate(kind, id string, version int64) AddOption {
	return func(e *Envelope) { e.AggregateType, e.AggregateID, e.AggregateVersion = kind, id, version }
}

// WithOrderingKey puts the event in one order with all events of the tenant that have the same key, also of other aggregates: in the outbox, at the
// broker, whose message key it becomes, and at consumers. Default: the aggregate's order.
func WithOrderingKey(key string) AddOption {
	return func(e *Envelope) { e.Delivery.OrderingKey = key }
}

// WithRoutingKey sets the broker's message key. Default: the ordering key if one is set, else the aggregate id. Together with [WithOrderingKey] a
// different key is refused, because the broker would not keep the order.
func WithRoutingKey(key string) AddOption { return func(e *Envelope) { e.RoutingKey = key } }

// WithContentType sets the media type of a payload of bytes. Default: application/octet-stream.
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

// WithDedupKey stores the event only if no earlier event of the tenant has this key, in this unit of work or an earlier one; otherwise adding it does
// nothing. Use it for a producer that may run twice for one cause, such as a timer or an import: let the key name the cause. The commit takes the
// key: of two units with the same key the second one waits for the first. outbox.Config.DedupRetention is how long keys are kept.
// A delayed event can be cancelled by its key, see outbox.Store.Delayed().CancelKey.
func WithDedupKey(key string) AddOption { return func(e *Envelope) { e.Delivery.DedupKey = key } }

// WithNotBefore delays the publication until t by the database's clock. A delayed event is in an order of its own, as a reminder should be: later
// events of its aggregate do not wait for it, in the outbox, at the broker or at consumers. It can be cancelled and moved until t, see
// outbox.Store.Delayed().CancelKey. With [WithOrderingKey] it stays in that order instead, and later events of the key wait until t.
func WithNotBefore(t time.Time) AddOption { return func(e *Envelope) { e.Delivery.NotBefore = t } }

// WithDelay is [WithNotBefore] for the time that lies d after the event is stored, by the database's clock. So the clock of this process does not
// matter. d is zero or more; 0 delays nothing.
func WithDelay(d time.Duration) AddOption { return func(e *Envelope) { e.Delivery.Delay = d } }

// WithExpiry makes the event a dead letter if it was not published by t, by the database's clock. Later events of its ordering key are published
// without it, unless projector.Config.BlockExpired is set.
func WithExpiry(t time.Time) AddOption { return func(e *Envelope) { e.Delivery.ExpiresAt = t } }

// WithMaxAttempts replaces projector.Config.MaxAttempts for this event.
func WithMaxAttempts(n int) AddOption { return func(e *Envelope) { e.Delivery.MaxAttempts = n } }
