package ops

import (
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox"
)

// LetterRef identifies one dead letter.
type LetterRef struct {
	Box Box
	// ID is the id of the event; in the inbox it is the message key.
	ID, Tenant string
	// Consumer and Source belong to a message. They are empty in the outbox.
	Consumer, Source string
}

// Message returns the reference as package inbox uses it.
func (r LetterRef) Message() operator.MessageRef {
	return operator.MessageRef{MessageKey: r.ID, Consumer: r.Consumer, TenantID: r.Tenant, Source: r.Source}
}

// Letter is a dead letter, of the outbox or of a consumer.
type Letter struct {
	Ref LetterRef
	// Envelope is the event or message. Its payload is nil in a list.
	Envelope event.Envelope
	// Key is its ordering key, "" for an event or message without order.
	Key string
	// DiedAt is when it was given up, by the clock of the database.
	DiedAt time.Time
	// Attempts counts its tries.
	Attempts int
	// Error is the last error. It may contain any text.
	Error string
	// Fingerprint is that of the error, see package operator/failures.
	Fingerprint string
	// FailedBy is the process of a consumer whose try failed last, with its version if that is known. "": it is not known, or it is an event.
	FailedBy string
	// Holds is true if later events or messages of the key wait until this one is replayed or discarded.
	Holds bool
}

// letterOfOutbox adds refusals and crashes up: for an operator both are tries that did not succeed.
func letterOfOutbox(d *outbox.DeadLetter) Letter {
	return Letter{
		Ref: LetterRef{Box: BoxOutbox, ID: d.ID, Tenant: d.TenantID}, Envelope: d.Envelope, Key: d.Key, DiedAt: d.DiedAt,
		Attempts: d.RetryCount + d.Crashes, Error: d.Error, Fingerprint: d.Fingerprint, Holds: d.Holds,
	}
}

func letterOfInbox(d *inbox.DeadLetter) Letter {
	return Letter{
		Ref:      LetterRef{Box: BoxInbox, ID: d.Key.MessageKey, Tenant: d.Key.TenantID, Consumer: d.Key.Consumer, Source: d.Key.Source},
		Envelope: d.Envelope, Key: d.Envelope.OrderingKey(), DiedAt: d.DiedAt, Attempts: d.Attempts, Error: d.Error, Fingerprint: d.Fingerprint, Holds: d.Holds,
		FailedBy: d.FailedBy,
	}
}

// afterOutbox returns the letter as the start of a page of the outbox, where letters are ordered by death and sequence.
func (l *Letter) afterOutbox() *outbox.DeadLetter {
	if l == nil {
		return nil
	}
	d := &outbox.DeadLetter{DiedAt: l.DiedAt}
	d.Sequence = l.Envelope.Sequence
	return d
}

// afterInbox returns the letter as the start of a page of the inbox, where letters are ordered by death and reference.
func (l *Letter) afterInbox() *inbox.DeadLetter {
	if l == nil {
		return nil
	}
	return &inbox.DeadLetter{DiedAt: l.DiedAt, Key: l.Ref.Message()}
}
