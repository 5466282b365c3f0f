package main

import (
	"encoding/json"
	"hash/fnv"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"
)

// createFloor is the outbox of the floors: the columns of oncebox's, one index, and nothing that is checked or locked.
const createFloor = `
CREATE TABLE floor (
	seq bigserial PRIMARY KEY, id uuid NOT NULL, occurred_at timestamptz NOT NULL,
	created_at timestamptz NOT NULL DEFAULT clock_timestamp(), not_before timestamptz, expires_at timestamptz,
	aggregate_version bigint NOT NULL, schema_version integer NOT NULL, lane smallint NOT NULL, max_attempts smallint,
	retry_count smallint NOT NULL DEFAULT 0, crashes smallint NOT NULL DEFAULT 0, tenant_id text NOT NULL, topic text NOT NULL,
	ordering_key text, aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL, source text NOT NULL,
	routing_key text, schema_id text, content_type text NOT NULL, dedup_key text, event_metadata json NOT NULL,
	payload bytea NOT NULL)`

// floorRow is a row as both floors write it, a bun model for one of them. Columns that would be NULL are left out.
type floorRow struct {
	bun.BaseModel `bun:"table:floor"`

	ID               string          `bun:"id,type:uuid"`
	OccurredAt       time.Time       `bun:"occurred_at"`
	AggregateVersion int64           `bun:"aggregate_version"`
	SchemaVersion    int             `bun:"schema_version"`
	Lane             int16           `bun:"lane"`
	TenantID         string          `bun:"tenant_id"`
	Topic            string          `bun:"topic"`
	OrderingKey      string          `bun:"ordering_key"`
	AggregateType    string          `bun:"aggregate_type"`
	AggregateID      string          `bun:"aggregate_id"`
	EventType        string          `bun:"event_type"`
	Source           string          `bun:"source"`
	RoutingKey       string          `bun:"routing_key"`
	ContentType      string          `bun:"content_type"`
	EventMetadata    json.RawMessage `bun:"event_metadata,type:json"`
	Payload          []byte          `bun:"payload"`
}

// floorRows makes the rows of one transaction: the same bytes that oncebox stores.
func floorRows(id string, version int64, k int) ([]floorRow, error) {
	encoded, err := json.Marshal(metadata())
	if err != nil {
		return nil, err
	}
	key := tenant + "|" + accountType + "|" + id
	h := fnv.New32a()
	h.Write([]byte(key))
	rows := make([]floorRow, k)
	for i := range rows {
		payload, err := newMoneyMoved(id).encode()
		if err != nil {
			return nil, err
		}
		eventID, err := uuid.NewV7()
		if err != nil {
			return nil, err
		}
		rows[i] = floorRow{
			ID: eventID.String(), OccurredAt: time.Now().UTC(), AggregateVersion: version + int64(i) + 1, SchemaVersion: 1,
			Lane: int16(h.Sum32() % 64), TenantID: tenant, Topic: accountType, OrderingKey: key,
			AggregateType: accountType, AggregateID: id, EventType: moneyMoved{}.EventType(), Source: source, RoutingKey: id,
			ContentType: "application/json", EventMetadata: encoded, Payload: payload,
		}
	}
	return rows, nil
}
