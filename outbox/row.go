package outbox

import (
	"database/sql"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/envelope"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// Row is an outbox row: the envelope plus the state of its delivery.
type Row struct {
	event.Envelope
	Lane       int16
	RetryCount int // refusals so far
	Crashes    int // projectors that died over it so far
	CreatedAt  time.Time

	// Waits says that NotBefore lies ahead, Expired that ExpiresAt has passed, both by the database's clock when the row
	// was read.
	Waits, Expired bool
	// Key is the ordering key as stored, "" for an unordered row.
	Key string
	// Cut says that the row, and what follows it in its lane, did not fit into the bound of its fetch. It has no payload.
	Cut bool

	size int // of the payload
}

// rowColumns are the columns that scanRow and decoder.row take, of a relation that has those of "outbox".
const rowColumns = rowStart + `payload` + rowEnd

const (
	rowStart = `seq, id, occurred_at, created_at, not_before, expires_at, aggregate_version, schema_version, lane,
	max_attempts, retry_count, crashes, tenant_id, topic, ordering_key, aggregate_type, aggregate_id, event_type, source,
	routing_key, schema_id, content_type, dedup_key, event_metadata, `
	rowEnd = `,
	coalesce(not_before > clock_timestamp(), false), coalesce(expires_at <= clock_timestamp(), false)`
)

// scanRow reads the columns of rowColumns into r, and what follows them into more.
func scanRow(scan pgsql.Scan, r *Row, more ...any) error {
	var (
		notBefore, expiresAt           sql.NullTime
		maxAttempts                    sql.NullInt16
		key, routing, schemaID, dedupe sql.NullString
		metadata                       sql.RawBytes
	)
	dest := []any{&r.Sequence, &r.ID, &r.OccurredAt, &r.CreatedAt, &notBefore, &expiresAt, &r.AggregateVersion,
		&r.SchemaVersion, &r.Lane, &maxAttempts, &r.RetryCount, &r.Crashes, &r.TenantID, &r.Topic, &key, &r.AggregateType, &r.AggregateID, &r.Type,
		&r.Source, &routing, &schemaID, &r.ContentType, &dedupe, &metadata, &r.Payload, &r.Waits, &r.Expired}
	if err := scan(append(dest, more...)...); err != nil {
		return err
	}
	r.OccurredAt, r.CreatedAt = r.OccurredAt.UTC(), r.CreatedAt.UTC()
	r.Key, r.RoutingKey, r.SchemaID = key.String, routing.String, schemaID.String
	r.Delivery = event.Delivery{
		OrderingKey: envelope.GivenKey(key.String, r.AggregateID, r.ID),
		DedupKey:    dedupe.String, NotBefore: notBefore.Time.UTC(), ExpiresAt: expiresAt.Time.UTC(), MaxAttempts: int(maxAttempts.Int16),
	}
	r.Metadata = readMetadata(metadata)
	return nil
}

func scanRows(rows *pgsql.Rows) ([]Row, error) {
	return pgsql.Collect(rows, func(scan pgsql.Scan, r *Row) error { return scanRow(scan, r) })
}

// scanBounded is scanRows for a bounded read.
func scanBounded(rows *pgsql.Rows, t *taking) ([]Row, error) {
	return pgsql.Collect(rows, func(scan pgsql.Scan, r *Row) error {
		more := []any{&r.size}
		var held bool
		if t != nil {
			more = append(more, &held, &t.mark.Seq, &t.mark.XID, &t.mark.Xmin)
		}
		err := scanRow(scan, r, more...)
		if held {
			t.held[r.Lane] = true
		}
		return err
	})
}
