package state

import (
	"encoding/json"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/outboxdb"
)

// Values of [Record.Status].
const (
	StatusNew        = outboxdb.StatusNew        // stored, or waiting behind another row or for its time
	StatusPublishing = outboxdb.StatusPublishing // fetched by the owner of its lane; an approximation
	StatusSent       = outboxdb.StatusSent       // confirmed by the broker
	StatusFailed     = outboxdb.StatusFailed     // refused, to be tried again
	StatusDead       = outboxdb.StatusDead       // given up
)

// Row is an event of the outbox, and the state of its delivery.
type Row = outboxdb.Row

// Record is a row of the view outbox_messages, for users' own queries with bun. The view has further columns, for example
// dedup_key and not_before, which a struct of your own can read. The fields that [event.Envelope] has mean the same here.
// Status is one of the constants. RetryAfter is nil unless the event was taken out of its lane to wait for a time, ErrorMessage unless the
// broker has refused it, SentAt unless it was published. CreatedAt is when it was stored. Paused says that the event waits because its
// tenant is paused, see tenants.Tenants.Pause.
type Record struct {
	bun.BaseModel `bun:"table:outbox_messages"`

	ID               string          `bun:"id"`
	TenantID         string          `bun:"tenant_id"`
	AggregateID      string          `bun:"aggregate_id"`
	AggregateType    string          `bun:"aggregate_type"`
	AggregateVersion int64           `bun:"aggregate_version"`
	EventType        string          `bun:"event_type"`
	Topic            string          `bun:"topic"`
	OccurredAt       time.Time       `bun:"occurred_at"`
	Payload          []byte          `bun:"payload"`
	EventMetadata    json.RawMessage `bun:"event_metadata,type:json"`
	RoutingKey       *string         `bun:"routing_key"`
	SchemaID         *string         `bun:"schema_id"`
	SchemaVersion    int             `bun:"schema_version"`
	Status           string          `bun:"status"`
	RetryCount       int             `bun:"retry_count"`
	RetryAfter       *time.Time      `bun:"retry_after"`
	ErrorMessage     *string         `bun:"error_message"`
	CreatedAt        time.Time       `bun:"created_at"`
	SentAt           *time.Time      `bun:"sent_at"`
	Sequence         int64           `bun:"sequence"`
	Source           string          `bun:"source"`
	Paused           bool            `bun:"paused"`
}
