package dead

import (
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/oncebox/oncebox/ops"
)

// Letter is a dead letter of the outbox or of a consumer, in the JSON output. Scripts use the names, so
// they never change.
type Letter struct {
	// Box is "outbox" for an event that could not be published, and "inbox" for a message that a consumer has given up.
	Box              string            `json:"box"`
	ID               string            `json:"id"`
	Consumer         string            `json:"consumer,omitempty"`
	MessageKey       string            `json:"message_key,omitempty"`
	Type             string            `json:"type"`
	SchemaVersion    int               `json:"schema_version"`
	Topic            string            `json:"topic"`
	Tenant           string            `json:"tenant"`
	Source           string            `json:"source"`
	AggregateType    string            `json:"aggregate_type,omitempty"`
	AggregateID      string            `json:"aggregate_id,omitempty"`
	AggregateVersion int64             `json:"aggregate_version,omitempty"`
	Sequence         int64             `json:"sequence,omitempty"`
	Key              string            `json:"key,omitempty"`
	Holds            bool              `json:"holds"`
	OccurredAt       time.Time         `json:"occurred_at"`
	DiedAt           time.Time         `json:"died_at"`
	Attempts         int               `json:"attempts"`
	Error            string            `json:"error"`
	FailedBy         string            `json:"failed_by,omitempty"`
	ContentType      string            `json:"content_type,omitempty"`
	Metadata         map[string]string `json:"metadata,omitempty"`
	// Payload is the payload if it is JSON; Payload64 is any other payload, in base64.
	Payload   json.RawMessage `json:"payload,omitempty"`
	Payload64 string          `json:"payload_base64,omitempty"`
}

// letterOf leaves the payload out: lists have none, and show adds it only if asked.
func letterOf(l *ops.Letter) Letter {
	e := &l.Envelope
	item := Letter{
		Box: string(l.Ref.Box), ID: e.ID, Consumer: l.Ref.Consumer, Type: e.Type, SchemaVersion: max(e.SchemaVersion, 1), Topic: e.Topic, Tenant: e.TenantID,
		Source: e.Source, AggregateType: e.AggregateType, AggregateID: e.AggregateID, AggregateVersion: e.AggregateVersion, Sequence: e.Sequence,
		Key: l.Key, Holds: l.Holds, OccurredAt: e.OccurredAt, DiedAt: l.DiedAt, Attempts: l.Attempts,
		Error: l.Error, FailedBy: l.FailedBy, ContentType: e.ContentType,
		Metadata: e.Metadata,
	}
	if l.Ref.Box == ops.BoxInbox {
		item.MessageKey = l.Ref.ID
	}
	return item
}

func lettersOf(found []ops.Letter) []Letter {
	list := make([]Letter, len(found))
	for n := range found {
		list[n] = letterOf(&found[n])
	}
	return list
}

// setPayload puts the payload into the field for its format.
func (l *Letter) setPayload(payload []byte) {
	if json.Valid(payload) {
		l.Payload = payload
		return
	}
	l.Payload64 = base64.StdEncoding.EncodeToString(payload)
}

// of returns where the letter died: in the outbox, or at which consumer.
func (l *Letter) of() string {
	if l.Consumer != "" {
		return "consumer " + l.Consumer
	}
	return l.Box
}
