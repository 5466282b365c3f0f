package operator

import "time"

// Part is a part of oncebox that has entries in the audit.
type Part string

// The parts.
const (
	// PartOutbox: dead letters, delayed events, tenants and settings of the outbox.
	PartOutbox Part = "outbox"
	// PartInbox: parked messages and dead letters of consumers.
	PartInbox Part = "inbox"
	// PartIdempotency: steps of requests.
	PartIdempotency Part = "idempotency"
	// EveryPart selects all of them, in an [AuditFilter].
	EveryPart Part = "*"
)

// AuditEntry is an action of an operator, or of a retention.
type AuditEntry struct {
	// ID grows with time.
	ID int64
	// At is when it was done, by the clock of the database.
	At time.Time
	// Part is the part of oncebox in which it was done.
	Part Part
	// Actor and Reason are those of [By].
	Actor string
	// Action is what was done.
	Action Action
	Reason string

	// TenantID owns the event, message or request. For Pause, Resume and Move it is the tenant itself.
	TenantID string
	// EventID is the id of the event. For a message it is the message key, which is that id if it is a UUIDv7. "" for an entry about a tenant, a
	// setting or a request, and for an entry of a retention.
	EventID string
	// Events is how many events or messages the entry stands for: 1, but for a retention.
	Events int64
	// Topic and Type are those of the event or message.
	Topic, Type string
	// Consumer, Source and MessageID are those of a message. MessageID is its id, which need not be a UUID.
	Consumer, Source, MessageID string

	// Key is the hash of the scope of a request, in hexadecimal digits. Step is the name of its step, and Epoch says which beginning of it.
	Key, Step string
	Epoch     int
}

// AuditFilter selects the entries of the audit that match every field that is set.
type AuditFilter struct {
	// Part is the part of oncebox, or [EveryPart]. Default: the part that is asked.
	Part Part
	// EventID selects what was done to one event, or by whatever consumers to one message.
	EventID string
	// TenantID selects what was done to one tenant and its events, messages and requests.
	TenantID string
	// Consumer selects what was done to messages of one consumer.
	Consumer string
	// Key selects what was done to one request.
	Key string
}
