package store

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
)

// DefaultPage is the size of a page whose limit is not given.
const DefaultPage = 100

// The columns of a message in the tables of parked messages and dead letters. The payload is stored as it came. Names are cleaned, so that PostgreSQL takes
// them.
//
// A column that also travels to consumers needs, behind its places in the outbox (see the type column of internal/outboxdb): the property in
// messaging/pulsar/internal/wire, the tables inbox_parked and inbox_dead, each list of this file with MessageArgs and ScanEnvelope, and the lists of
// park.go. The parameters behind MessageValues in dead.go and gate.go then have other numbers. as_stored.go and inbox/letter.go clean texts, and
// messagingtest checks that the field arrives.
const (
	MessageColumns = `message_key, consumer, tenant_id, source, ` + sentColumns + `, payload`

	// MovedColumns are these columns without the consumer, for messages that get another one.
	MovedColumns = `message_key, tenant_id, source, ` + sentColumns + `, payload`

	// ListedColumns are the columns of a list: all but the payload, which may be a megabyte.
	ListedColumns = `message_key, consumer, tenant_id, source, ` + sentColumns + `, NULL::bytea AS payload`

	// KeyOnly has one value for each of ListedColumns, for a table that has only the key of a message.
	KeyOnly = `message_key, consumer, tenant_id, source, '', '', '', NULL, '', '', 0, 0, NULL, 1, NULL, '', NULL, '{}', NULL`

	// sentColumns are the columns that a message brings along, in the order of MessageArgs.
	sentColumns = `message_id, event_type, topic, ordering_key, aggregate_type, aggregate_id, aggregate_version, sequence,
	schema_id, schema_version, routing_key, content_type, occurred_at, event_metadata`

	// MessageValues are the parameters for MessageColumns, key_lock, attempts and error_message, in the order of MessageArgs.
	MessageValues = `$1::uuid, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text, nullif($8::text, ''),
	$9::text, $10::text, $11::bigint, $12::bigint, nullif($13::text, ''), $14::integer, nullif($15::text, ''), $16::text,
	$17::timestamptz, $18::json, $19::bytea, $20::bigint, $21::integer, $22::text`

	// EnvelopeColumns are the columns that ScanEnvelope reads.
	EnvelopeColumns = `message_key::text, consumer, tenant_id, source, message_id, event_type, topic, aggregate_type, aggregate_id,
	aggregate_version, sequence, coalesce(schema_id, ''), schema_version, coalesce(routing_key, ''), content_type,
	occurred_at, event_metadata, payload, coalesce(ordering_key, '')`
)

// MessageArgs returns the arguments for MessageValues.
func MessageArgs(id Identity, m *messaging.Message, attempts int, reason string) ([]any, error) {
	metadata, err := json.Marshal(m.Metadata.Clone())
	if err != nil {
		return nil, fmt.Errorf("encode the metadata: %w", err)
	}
	payload := m.Payload
	if payload == nil {
		payload = []byte{}
	}
	return []any{
		id.Key.String(), id.Consumer, id.Tenant, id.Source,
		Identifier(m.ID), Identifier(m.Type), Identifier(m.Topic), readable(id.Ordering),
		Identifier(m.AggregateType), Identifier(m.AggregateID), m.AggregateVersion, m.Sequence, Identifier(m.SchemaID),
		storedVersion(m.SchemaVersion), readable(m.RoutingKey), readable(m.ContentType), storable(m.OccurredAt), string(metadata), payload,
		id.KeyLock(), attempts, reason,
	}, nil
}

// transpose turns rows of MessageArgs into one array for each column.
func transpose(rows [][]any) []any {
	columns := make([]any, len(rows[0]))
	for c, first := range rows[0] {
		switch first.(type) {
		case string:
			columns[c] = column[string](rows, c)
		case int:
			columns[c] = column[int](rows, c)
		case int64:
			columns[c] = column[int64](rows, c)
		case []byte:
			columns[c] = column[[]byte](rows, c)
		case *time.Time:
			columns[c] = column[*time.Time](rows, c)
		default: // an array that is left out would be stored as NULL
			panic(fmt.Sprintf("store: MessageArgs has a %T, which transpose does not know", first))
		}
	}
	return columns
}

func column[T any](rows [][]any, c int) []T {
	values := make([]T, len(rows))
	for n, row := range rows {
		values[n] = row[c].(T) //nolint:forcetypeassert // all rows are of MessageArgs
	}
	return values
}

// RefArgs returns the arguments of the statements about one message. It refuses a key that is not a UUID.
func RefArgs(ref operator.MessageRef) ([]any, error) {
	parsed, err := uuid.Parse(ref.MessageKey)
	if err != nil {
		return nil, fmt.Errorf("MessageRef.MessageKey %q is not a UUID: %w", ref.MessageKey, err)
	}
	return []any{parsed.String(), ref.Consumer, ref.TenantID, ref.Source}, nil
}

// ScanEnvelope reads the EnvelopeColumns, and the columns after them into more.
func ScanEnvelope(scan pgsql.Scan, more ...any) (k operator.MessageRef, e event.Envelope, err error) {
	var (
		occurred sql.NullTime
		metadata []byte
		ordering string
	)
	err = scan(append([]any{
		&k.MessageKey, &k.Consumer, &k.TenantID, &k.Source, &e.ID, &e.Type, &e.Topic, &e.AggregateType, &e.AggregateID,
		&e.AggregateVersion, &e.Sequence, &e.SchemaID, &e.SchemaVersion, &e.RoutingKey, &e.ContentType,
		&occurred, &metadata, &e.Payload, &ordering,
	}, more...)...)
	if err != nil {
		return k, e, err
	}
	e.TenantID, e.Source, e.OccurredAt = k.TenantID, k.Source, occurred.Time.UTC()
	e.Delivery.OrderingKey = givenKey(ordering, &e)
	return k, e, json.Unmarshal(metadata, &e.Metadata)
}
