package event

import (
	"strings"
	"time"
)

// Envelope is an event with everything that travels with it. The same value is the row in the outbox, the message at the broker and the argument of a
// handler. Empty strings and zero numbers mean "not set".
type Envelope struct {
	// ID identifies the event and stays the same over every retry and replay. Events that are made here have a UUIDv7.
	ID string
	// Type is the logical type of the event, see [Event.EventType].
	Type string
	// Source names the service that announced the event. Together with ID it identifies the event. Required.
	Source string
	// SchemaID names the payload's schema in an external registry, if there is one (CloudEvents dataschema).
	SchemaID string
	// SchemaVersion is the version of the payload's schema, from 1. 0 is read as 1.
	SchemaVersion int
	// TenantID names the customer of the service that the event belongs to. It is a part of every ordering key.
	TenantID string

	// AggregateType and AggregateID name the aggregate that the event is about. Both are empty for an event without an aggregate.
	AggregateType, AggregateID string
	// AggregateVersion is the aggregate's version after the event, 0 for unversioned aggregates.
	AggregateVersion int64
	// Sequence numbers the events of one ordering key in one database, in the order of their commits. It is set when the unit of work
	// writes the events.
	Sequence int64

	// Topic is the logical topic, without a broker's tenant or namespace.
	Topic string
	// RoutingKey is the broker's message key. Default: the explicit ordering key, else the aggregate id.
	RoutingKey string
	// OccurredAt is when the event was recorded, with a precision of microseconds.
	OccurredAt time.Time
	// ContentType is the media type of Payload.
	ContentType string
	// Metadata holds correlation and causation ids, the trace context and entries of users.
	Metadata Metadata
	// Payload is the encoded event. It is carried byte for byte.
	Payload []byte

	// Delivery controls how this database publishes the event. Only its ordering key is sent to the broker.
	Delivery Delivery
}

// Delivery controls how and when an event of the outbox is published.
type Delivery struct {
	// OrderingKey puts events in an order: events with the same key are published in the order of their commits. Default: tenant, aggregate type and
	// aggregate id, see [Envelope.OrderingKey]. Events without any of them are unordered. An explicit key travels with the event, also as the message
	// key, so that consumers keep the same order.
	OrderingKey string
	// DedupKey is a key of the producer's choice: a second event of the tenant with the same key is not stored, see [WithDedupKey].
	DedupKey string
	// NotBefore delays the publication. With an explicit ordering key, later events of the key wait, too. Without one, a delayed event leaves its
	// aggregate's order: its OrderingKey becomes its own id, here and at the broker, so that it and other events do not wait for each other.
	NotBefore time.Time
	// Delay is NotBefore as a duration from the moment at which the event is stored. The outbox computes NotBefore from it, by the database's clock.
	Delay time.Duration
	// ExpiresAt is when the event loses its use. If it was not published by then, it becomes a dead letter. See [WithExpiry].
	ExpiresAt time.Time
	// MaxAttempts replaces projector.Config.MaxAttempts for this event. 0: the projector's value.
	MaxAttempts int
}

// OrderingKey returns the key that puts the event in an order, in the outbox and at consumers; "" if it is unordered. It always starts with the
// tenant, so that no tenant can block another one.
//
// The parts are joined by "|", and a "|" or "\" within a part is escaped by "\", so different parts give different keys. An explicit key has one
// separator and an aggregate's key has two, so that the two kinds differ, too.
func (e *Envelope) OrderingKey() string {
	switch {
	case e.Delivery.OrderingKey != "":
		return escape(e.TenantID) + "|" + escape(e.Delivery.OrderingKey)
	case e.AggregateID != "":
		return escape(e.TenantID) + "|" + escape(e.AggregateType) + "|" + escape(e.AggregateID)
	default:
		return ""
	}
}

func escape(s string) string {
	if !strings.ContainsAny(s, `|\`) {
		return s
	}
	return strings.NewReplacer(`\`, `\\`, `|`, `\|`).Replace(s)
}
