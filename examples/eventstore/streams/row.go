package streams

import (
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
)

// row is an envelope without what only its delivery needs.
type row struct {
	bun.BaseModel `bun:"table:stream_events"`

	TenantID      string
	AggregateType string
	AggregateID   string
	Version       int64
	ID            string
	EventType     string
	SchemaVersion int
	SchemaID      string
	Source        string
	Topic         string
	OccurredAt    time.Time
	ContentType   string
	Metadata      event.Metadata `bun:"type:jsonb"`
	Payload       []byte
}

func rowOf(e *event.Envelope) row {
	return row{
		TenantID: e.TenantID, AggregateType: e.AggregateType, AggregateID: e.AggregateID, Version: e.AggregateVersion,
		ID: e.ID, EventType: e.Type, SchemaVersion: e.SchemaVersion, SchemaID: e.SchemaID, Source: e.Source, Topic: e.Topic,
		OccurredAt: e.OccurredAt, ContentType: e.ContentType, Metadata: e.Metadata, Payload: e.Payload,
	}
}

func (r *row) envelope() event.Envelope {
	return event.Envelope{
		TenantID: r.TenantID, AggregateType: r.AggregateType, AggregateID: r.AggregateID, AggregateVersion: r.Version,
		ID: r.ID, Type: r.EventType, SchemaVersion: r.SchemaVersion, SchemaID: r.SchemaID, Source: r.Source, Topic: r.Topic,
		OccurredAt: r.OccurredAt.UTC(), ContentType: r.ContentType, Metadata: r.Metadata, Payload: r.Payload,
		RoutingKey: r.AggregateID,
	}
}
