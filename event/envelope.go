package event

import (
	"strings"
	"time"
)

// Envelope is an event with all that describes it. The same value is the outbox row, the message on the wire and what
// a handler receives. Empty strings and zero numbers mean "not set".
type Envelope struct {
	// ID is unique in the world and stable over every retry and replay: a UUIDv7 for events made here.
	ID string
	// Type is the logical type, [Event.EventType].
	Type string
	// Source names the service that announced the event. Together with ID it identifies the event. Required.
	Source string
	// SchemaID names the schema of the payload in a registry outside, if any (CloudEvents dataschema).
	SchemaID string
	// SchemaVersion is the version of the payload's schema, from 1. 0 is read as 1.
	SchemaVersion int
	// TenantID separates customers of one service. It is part of every key.
	TenantID string

	// AggregateType and AggregateID name the aggregate to which it happened. Both empty: not of an aggregate.
	AggregateType, AggregateID string
	// AggregateVersion is the version of the aggregate that the event leads to, 0 for unversioned aggregates.
	AggregateVersion int64
	// Sequence is the order of commit among the events of one ordering key in one database. Filled at the flush.
	Sequence int64

	// Topic is the logical topic, without a broker's tenant or namespace.
	Topic string
	// RoutingKey is the broker's message key: an explicit ordering key, else the aggregate id unless set otherwise.
	RoutingKey string
	// OccurredAt is when the event was recorded, in microseconds.
	OccurredAt time.Time
	// ContentType is the media type of Payload.
	ContentType string
	// Metadata travels with the event: correlation, causation, trace context and what users add.
	Metadata Metadata
	// Payload is the encoded event. It is carried byte for byte.
	Payload []byte

	// Delivery is how this database delivers the event. Of it only the ordering key goes on the wire.
	Delivery Delivery
}

// Delivery says how and when an outbox row is to be published.
type Delivery struct {
	// OrderingKey serializes rows: those with equal keys leave in the order of their commits. Default: tenant, aggregate
	// type and aggregate id, see [Envelope.OrderingKey]. Rows without any of them are unordered. An explicit key travels with the
	// event, as the message key too, so that consumers keep the same order.
	OrderingKey string
	// DedupKey is the producer's own key: a second event of the tenant with the same key is not stored, see [WithDedupKey].
	DedupKey string
	// NotBefore delays the publication. What follows under an explicit ordering key waits as well. Without one, a delayed event is not
	// part of its aggregate's order: its OrderingKey becomes its own id, here and on the wire, so that it waits for no other event
	// and no other event waits for it.
	NotBefore time.Time
	// ExpiresAt is when the event is of no use any more: not published after it, it becomes a dead letter. See
	// [WithExpiry].
	ExpiresAt time.Time
	// MaxAttempts overrides the projector's maximum. 0: the projector's.
	MaxAttempts int
}

// OrderingKey is the value that decides lane, block, hold and park of the event, and "" if it is unordered. It starts
// with the tenant in every case, so that no tenant can block another one.
//
// The parts are joined by "|", and a "|" or "\" within a part is escaped by "\": distinct parts give distinct keys. An
// explicit key has one separator and an aggregate's has two, so these two kinds cannot meet either.
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
