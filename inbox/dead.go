package inbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/messaging"
)

// maxError is how much of an error is stored, in bytes.
const maxError = 2 << 10

// ErrNotDead means that there is no such dead letter: it was never one, or somebody was faster.
var ErrNotDead = errors.New("inbox: there is no such dead letter")

// DeadKey identifies a dead letter.
type DeadKey struct {
	MessageKey, Consumer, TenantID, Source string
}

// Dead is a message that a consumer gave up.
type Dead struct {
	Key DeadKey
	// Envelope is the message as it came. Only identifiers that cannot be stored were made readable.
	Envelope event.Envelope
	// Attempts counts its tries, as far as they are known.
	Attempts int
	// Error is the last error, at most 2 KiB of it.
	Error string
	// DiedAt is when it was given up.
	DiedAt time.Time
}

// DeadQuery selects dead letters.
type DeadQuery struct {
	// Consumer selects those of one consumer. Default: of all.
	Consumer string
	// After continues after the last one of an earlier page. Default: from the oldest on.
	After *Dead
	// Limit is the size of a page. Default: 100.
	Limit int
}

const (
	storeDead = `
INSERT INTO {schema}.inbox_dead (message_key, consumer, tenant_id, source, message_id, event_type, topic, ordering_key,
	aggregate_type, aggregate_id, aggregate_version, sequence, schema_id, schema_version, routing_key, content_type,
	occurred_at, event_metadata, payload, attempts, error_message)
VALUES ($1::uuid, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text, nullif($8::text, ''),
	$9::text, $10::text, $11::bigint, $12::bigint, nullif($13::text, ''), $14::integer, nullif($15::text, ''), $16::text,
	$17::timestamptz, $18::json, $19::bytea, $20::integer, $21::text)
ON CONFLICT (message_key, consumer, tenant_id, source) DO UPDATE
SET attempts = inbox_dead.attempts + excluded.attempts, error_message = excluded.error_message, died_at = excluded.died_at`

	deadColumns = `
SELECT message_key::text, consumer, tenant_id, source, message_id, event_type, topic, aggregate_type, aggregate_id,
	aggregate_version, sequence, coalesce(schema_id, ''), schema_version, coalesce(routing_key, ''), content_type,
	occurred_at, event_metadata, payload, attempts, error_message, died_at
FROM {schema}.inbox_dead`

	listDead = deadColumns + `
WHERE ($1::text = '' OR consumer = $1::text)
	AND (died_at, message_key, consumer, tenant_id, source) > ($2::timestamptz, $3::uuid, $4::text, $5::text, $6::text)
ORDER BY died_at, message_key, consumer, tenant_id, source
LIMIT $7::integer`

	takeDead = deadColumns + `
WHERE message_key = $1::uuid AND consumer = $2::text AND tenant_id = $3::text AND source = $4::text
FOR UPDATE`

	deleteDead = `
DELETE FROM {schema}.inbox_dead
WHERE message_key = $1::uuid AND consumer = $2::text AND tenant_id = $3::text AND source = $4::text`
)

// storeDead keeps m. A dead letter of the same key is one whose entry has expired since: the message came again.
func (i *Inbox) storeDead(ctx context.Context, tx bun.IDB, id identity, m *messaging.Message, cause error) error {
	metadata, err := json.Marshal(m.Metadata.Clone())
	if err != nil {
		return fmt.Errorf("encode the metadata: %w", err)
	}
	payload := m.Payload
	if payload == nil {
		payload = []byte{}
	}
	var occurred any
	if !m.OccurredAt.IsZero() {
		occurred = m.OccurredAt
	}
	_, err = i.sql.Exec(ctx, tx, storeDead, id.key.String(), id.consumer, id.tenant, id.source,
		identifier(m.ID), identifier(m.Type), identifier(m.Topic), readable(m.OrderingKey()),
		identifier(m.AggregateType), identifier(m.AggregateID), m.AggregateVersion, m.Sequence, identifier(m.SchemaID),
		max(m.SchemaVersion, 1), identifier(m.RoutingKey), identifier(m.ContentType), occurred, string(metadata), payload,
		max(m.Attempt, 1), errorText(cause))
	return pgsql.Explain(err)
}

// errorText makes an error fit for a column.
func errorText(err error) string {
	return cut(strings.ReplaceAll(strings.ToValidUTF8(err.Error(), "\uFFFD"), "\x00", "\uFFFD"), maxError)
}

// Dead lists dead letters, the oldest first.
func (i *Inbox) Dead(ctx context.Context, q DeadQuery) ([]Dead, error) {
	after := q.After
	if after == nil {
		after = &Dead{Key: DeadKey{MessageKey: "00000000-0000-0000-0000-000000000000"}}
	}
	if q.Limit <= 0 {
		q.Limit = 100
	}
	rows, err := i.sql.Query(ctx, i.units.DB(ctx), listDead, q.Consumer,
		after.DiedAt, after.Key.MessageKey, after.Key.Consumer, after.Key.TenantID, after.Key.Source, q.Limit)
	if err != nil {
		return nil, fmt.Errorf("inbox: list dead letters: %w", pgsql.Explain(err))
	}
	defer rows.Close()
	var list []Dead
	for rows.Next() {
		d, err := scanDead(rows.Scan)
		if err != nil {
			return nil, fmt.Errorf("inbox: list dead letters: %w", err)
		}
		list = append(list, d)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("inbox: list dead letters: %w", err)
	}
	return list, nil
}

func scanDead(scan func(...any) error) (Dead, error) {
	var (
		d        Dead
		occurred sql.NullTime
		metadata []byte
	)
	k, e := &d.Key, &d.Envelope
	err := scan(&k.MessageKey, &k.Consumer, &k.TenantID, &k.Source, &e.ID, &e.Type, &e.Topic, &e.AggregateType, &e.AggregateID,
		&e.AggregateVersion, &e.Sequence, &e.SchemaID, &e.SchemaVersion, &e.RoutingKey, &e.ContentType,
		&occurred, &metadata, &e.Payload, &d.Attempts, &d.Error, &d.DiedAt)
	if err != nil {
		return Dead{}, err
	}
	e.TenantID, e.Source, e.OccurredAt = k.TenantID, k.Source, occurred.Time.UTC()
	return d, json.Unmarshal(metadata, &e.Metadata)
}
