package ops

import (
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox"
)

// LetterRef names one dead letter.
type LetterRef struct {
	Box Box
	// ID is that of the event, in the inbox the message key.
	ID, Tenant string
	// Consumer and Source are those of a message, "" in the outbox.
	Consumer, Source string
}

// Message is the name of a letter of the inbox for the calls of package inbox.
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
	// Error is the last error. It may be any text.
	Error string
	// Holds says that the later events or messages of its key wait until it is replayed or discarded.
	Holds bool
}

func letterOfOutbox(d *outbox.DeadLetter) Letter {
	return Letter{
		Ref: LetterRef{Box: BoxOutbox, ID: d.ID, Tenant: d.TenantID}, Envelope: d.Envelope, Key: d.Key, DiedAt: d.DiedAt,
		Attempts: d.RetryCount + d.Crashes, Error: d.Error, Holds: d.Holds,
	}
}

func letterOfInbox(d *inbox.DeadLetter) Letter {
	return Letter{
		Ref:      LetterRef{Box: BoxInbox, ID: d.Key.MessageKey, Tenant: d.Key.TenantID, Consumer: d.Key.Consumer, Source: d.Key.Source},
		Envelope: d.Envelope, Key: d.Envelope.OrderingKey(), DiedAt: d.DiedAt, Attempts: d.Attempts, Error: d.Error, Holds: d.Holds,
	}
}

// afterOutbox returns the letter as the place behind which a page of the outbox begins.
func (l *Letter) afterOutbox() *outbox.DeadLetter {
	if l == nil {
		return nil
	}
	d := &outbox.DeadLetter{DiedAt: l.DiedAt}
	d.Sequence = l.Envelope.Sequence
	return d
}

// afterInbox is a letter as the place behind which a page of the inbox begins.
func (l *Letter) afterInbox() *inbox.DeadLetter {
	if l == nil {
		return nil
	}
	return &inbox.DeadLetter{DiedAt: l.DiedAt, Key: l.Ref.Message()}
}
