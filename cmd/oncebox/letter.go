package main

import (
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/outbox"
)

// letter is a dead letter, of the outbox or of a consumer. The names of its JSON stay.
type letter struct {
	// Box is "outbox" for an event that could not be published, "inbox" for a message that a consumer gave up.
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
	ContentType      string            `json:"content_type,omitempty"`
	Metadata         map[string]string `json:"metadata,omitempty"`
	// Payload is the payload itself where that is JSON. Payload64 is any other payload.
	Payload   json.RawMessage `json:"payload,omitempty"`
	Payload64 string          `json:"payload_base64,omitempty"`
}

func letterOf(box string, e *event.Envelope) letter {
	return letter{
		Box: box, ID: e.ID, Type: e.Type, SchemaVersion: max(e.SchemaVersion, 1), Topic: e.Topic, Tenant: e.TenantID, Source: e.Source,
		AggregateType: e.AggregateType, AggregateID: e.AggregateID, AggregateVersion: e.AggregateVersion, Sequence: e.Sequence,
		OccurredAt: e.OccurredAt, ContentType: e.ContentType, Metadata: e.Metadata,
	}
}

func outboxLetter(d *outbox.DeadLetter) letter {
	l := letterOf("outbox", &d.Envelope)
	l.Key, l.DiedAt, l.Attempts, l.Error, l.Holds = d.Key, d.DiedAt, d.RetryCount+d.Crashes, d.Error, d.Holds
	return l
}

func inboxLetter(d *inbox.DeadLetter) letter {
	l := letterOf("inbox", &d.Envelope)
	l.Consumer, l.MessageKey = d.Key.Consumer, d.Key.MessageKey
	l.Key, l.DiedAt, l.Attempts, l.Error, l.Holds = d.Envelope.OrderingKey(), d.DiedAt, d.Attempts, d.Error, d.Holds
	return l
}

// setPayload shows the payload.
func (l *letter) setPayload(payload []byte) {
	if json.Valid(payload) {
		l.Payload = payload
		return
	}
	l.Payload64 = base64.StdEncoding.EncodeToString(payload)
}

// of is where it is dead.
func (l *letter) of() string {
	if l.Consumer != "" {
		return "consumer " + l.Consumer
	}
	return l.Box
}
