package operator

import "time"

// Part is a part of oncebox that has entries in the audit.
type Part string

// The parts.
const (
	// PartOutbox has dead letters, delayed events, tenants and settings of the outbox.
	PartOutbox Part = "outbox"
	// PartInbox has parked messages and dead letters of consumers.
	PartInbox Part = "inbox"
	// PartIdempotency has steps of requests.
	PartIdempotency Part = "idempotency"
	// EveryPart selects all parts in an [AuditFilter].
	EveryPart Part = "*"
)

// AuditEntry is an action of an operator, or of a retention.
type AuditEntry struct {
	// ID is the number of the entry; later entries have larger numbers.
	ID int64
	// At is when it was done, by the clock of the database.
	At time.Time
	// Part is the part of oncebox in which it was done.
	Part Part
	// Actor and Reason come from [By].
	Actor string
	// Action is what was done.
	Action Action
	Reason string

	// TenantID is the tenant of the event, message or request. For Pause, Resume and Move it is the tenant itself.
	TenantID string
	// EventID is the id of the event. For a message it is the message key, which is the message's id if that is a
	// UUIDv7. It is empty for an entry about a tenant, a setting, a request or a retention.
	EventID string
	// Events is how many events or messages the entry stands for: 1, except for a retention.
	Events int64
	// Topic and Type are those of the event or message.
	Topic, Type string
	// Consumer, Source and MessageID belong to a message. MessageID is its id, which may be any text.
	Consumer, Source, MessageID string

	// Key is the hash of a request's scope, in hexadecimal digits. Step is the name of the step. Epoch
	// is the number of its beginning, because a step can be begun again.
	Key, Step string
	Epoch     int

	// Fingerprint is that of a group of failures.
	Fingerprint string
}

// AuditFilter selects the entries of the audit that match every field that is set.
type AuditFilter struct {
	// Part is the part of oncebox, or [EveryPart]. Default: the part whose method is called.
	Part Part
	// EventID selects entries about one event, or about one message at any consumer.
	EventID string
	// TenantID selects entries about one tenant, and about its events, messages and requests.
	TenantID string
	// Consumer selects entries about messages of one consumer.
	Consumer string
	// Key selects entries about one request.
	Key string
	// Fingerprint selects entries about one group of failures: its notes and its archive.
	Fingerprint string
}
