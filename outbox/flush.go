package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// columns names every column of an outbox row that is copied when the row moves. Always by name: the tables grow.
const columns = `seq, id, occurred_at, created_at, not_before, expires_at, aggregate_version, schema_version, lane, max_attempts,
	retry_count, crashes, tenant_id, topic, ordering_key, aggregate_type, aggregate_id, event_type, source, routing_key,
	schema_id, content_type, dedup_key, event_metadata, payload`

// insertRows takes the locks of the ordering keys, then draws the numbers.
//
// Without the locks, two transactions of one key could draw 7 and 8 and commit as 8, 7; a relay that looks in between
// publishes 8 first. The INSERT must read the CTE that takes the locks, here by CROSS JOIN and l.n: PostgreSQL does not
// execute a CTE that nobody reads, and says nothing about it. The locks are held to the end of the transaction.
//
// pg_current_xact_id goes back to the unit of work: proof that the transaction is alive, and the name by which a lost
// COMMIT is looked up.
const insertRows = insertHead + `
FROM l CROSS JOIN unnest($3::uuid[], $4::timestamptz[], $5::bigint[], $6::int[], $7::smallint[], $8::text[], $9::text[],
	$10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[], $16::text[], $17::text[], $18::json[],
	$19::bytea[], $20::timestamptz[], $21::timestamptz[], $22::smallint[], $23::text[])
	WITH ORDINALITY u(id, oc, av, sv, lane, te, topic, ok, at, ai, et, so, rk, si, ct, em, pl, nb, ex, ma, dk, ord)` + insertTail

// insertOne is insertRows for a single event, by far the most frequent flush. Server and driver spend less on plain
// parameters than on arrays of one element.
const insertOne = insertHead + `
FROM l CROSS JOIN (VALUES ($3::uuid, $4::timestamptz, $5::bigint, $6::int, $7::smallint, $8::text, $9::text,
	$10::text, $11::text, $12::text, $13::text, $14::text, $15::text, $16::text, $17::text, $18::json,
	$19::bytea, $20::timestamptz, $21::timestamptz, $22::smallint, $23::text, 1))
	u(id, oc, av, sv, lane, te, topic, ok, at, ai, et, so, rk, si, ct, em, pl, nb, ex, ma, dk, ord)` + insertTail

const insertHead = `
WITH l AS MATERIALIZED (SELECT count(pg_advisory_xact_lock($1::int, b)) AS n FROM unnest($2::int[]) b)
INSERT INTO {schema}.outbox (id, occurred_at, aggregate_version, schema_version, lane, tenant_id, topic, ordering_key,
	aggregate_type, aggregate_id, event_type, source, routing_key, schema_id, content_type, event_metadata, payload,
	not_before, expires_at, max_attempts, dedup_key)
SELECT u.id, u.oc, u.av, u.sv, u.lane, u.te, u.topic, u.ok, u.at, u.ai, u.et, u.so, u.rk, u.si, u.ct, u.em, u.pl,
	u.nb, u.ex, u.ma, u.dk`

const insertTail = `
WHERE l.n >= 0
ORDER BY u.ord
RETURNING pg_current_xact_id()::text, id::text, seq`

// Flush stores evs through tx and fills in their Sequence. It is the Sink of package uow.
func (s *Store) Flush(ctx context.Context, tx bun.IDB, evs []event.Envelope) error {
	_, err := s.FlushProbe(ctx, tx, evs)
	return err
}

// FlushProbe is [Store.Flush], and returns the id of the transaction.
func (s *Store) FlushProbe(ctx context.Context, tx bun.IDB, evs []event.Envelope) (xid string, err error) {
	if len(evs) == 0 {
		return "", nil
	}
	l, err := s.loadLayout(ctx, tx)
	if err != nil {
		return "", err
	}
	in, err := newInsert(l, evs)
	if err != nil {
		return "", err
	}
	statement, args := insertRows, in.args(l)
	if len(evs) == 1 {
		statement, args = insertOne, in.first(l)
	}
	rows, err := s.sql.Query(ctx, tx, statement, args...)
	if err != nil {
		return "", fmt.Errorf("outbox: insert %d events: %w", len(evs), pgsql.Explain(err))
	}
	defer rows.Close()
	index := make(map[string]int, len(evs))
	for i := range evs {
		index[evs[i].ID] = i
	}
	stored := 0
	for rows.Next() {
		// The order of RETURNING is nobody's promise, so rows are matched by id.
		var id string
		var seq int64
		if err := rows.Scan(&xid, &id, &seq); err != nil {
			return "", fmt.Errorf("outbox: insert %d events: %w", len(evs), err)
		}
		evs[index[id]].Sequence = seq
		stored++
	}
	if err := rows.Err(); err != nil {
		return "", fmt.Errorf("outbox: insert %d events: %w", len(evs), pgsql.Explain(err))
	}
	if stored != len(evs) {
		return "", fmt.Errorf("outbox: insert: %d of %d events were stored", stored, len(evs))
	}
	return xid, nil
}

// insert holds the columns of the rows, one slice each, as unnest wants them.
type insert struct {
	locks                                     []int32
	id, tenant, topic, aggType, aggID         []string
	eventType, source, contentType, metadata  []string
	orderingKey, routingKey, schemaID, dedupe []*string
	occurredAt                                []time.Time
	notBefore, expiresAt                      []*time.Time
	aggVersion                                []int64
	schemaVersion                             []int32
	lane                                      []int16
	maxAttempts                               []*int16
	payload                                   [][]byte
}

func newInsert(l *layout, evs []event.Envelope) (*insert, error) {
	in := &insert{}
	for i := range evs {
		e := &evs[i]
		md, err := json.Marshal(e.Metadata.Clone())
		if err != nil {
			return nil, fmt.Errorf("outbox: encode metadata of %s %s: %w", e.Type, e.ID, err)
		}
		lane, lock := l.place(e)
		if lock >= 0 {
			in.locks = append(in.locks, lock)
		}
		in.lane = append(in.lane, lane)
		in.id = append(in.id, e.ID)
		in.tenant = append(in.tenant, e.TenantID)
		in.topic = append(in.topic, e.Topic)
		in.aggType = append(in.aggType, e.AggregateType)
		in.aggID = append(in.aggID, e.AggregateID)
		in.eventType = append(in.eventType, e.Type)
		in.source = append(in.source, e.Source)
		in.contentType = append(in.contentType, e.ContentType)
		in.metadata = append(in.metadata, string(md))
		in.orderingKey = append(in.orderingKey, nullable(e.OrderingKey()))
		in.routingKey = append(in.routingKey, nullable(e.RoutingKey))
		in.schemaID = append(in.schemaID, nullable(e.SchemaID))
		in.dedupe = append(in.dedupe, nullable(e.Delivery.DedupKey))
		in.occurredAt = append(in.occurredAt, e.OccurredAt)
		in.notBefore = append(in.notBefore, nullable(e.Delivery.NotBefore))
		in.expiresAt = append(in.expiresAt, nullable(e.Delivery.ExpiresAt))
		in.aggVersion = append(in.aggVersion, e.AggregateVersion)
		in.schemaVersion = append(in.schemaVersion, int32(max(e.SchemaVersion, 1)))                          //nolint:gosec // versions are small
		in.maxAttempts = append(in.maxAttempts, nullable(int16(min(e.Delivery.MaxAttempts, math.MaxInt16)))) //nolint:gosec // bounded on the line
		payload := e.Payload
		if payload == nil {
			payload = []byte{}
		}
		in.payload = append(in.payload, payload)
	}
	in.locks = sortedLocks(in.locks)
	return in, nil
}

func (in *insert) args(l *layout) []any {
	return []any{
		l.lockSpace, in.sorted(), in.id, in.occurredAt, in.aggVersion, in.schemaVersion, in.lane, in.tenant, in.topic,
		in.orderingKey, in.aggType, in.aggID, in.eventType, in.source, in.routingKey, in.schemaID, in.contentType,
		in.metadata, in.payload, in.notBefore, in.expiresAt, in.maxAttempts, in.dedupe,
	}
}

// first returns the parameters of the first row, in the order of args.
func (in *insert) first(l *layout) []any {
	return []any{
		l.lockSpace, in.sorted(), in.id[0], in.occurredAt[0], in.aggVersion[0], in.schemaVersion[0], in.lane[0], in.tenant[0],
		in.topic[0], in.orderingKey[0], in.aggType[0], in.aggID[0], in.eventType[0], in.source[0], in.routingKey[0],
		in.schemaID[0], in.contentType[0], in.metadata[0], in.payload[0], in.notBefore[0], in.expiresAt[0],
		in.maxAttempts[0], in.dedupe[0],
	}
}

// sorted returns the locks, never nil: NULL would be no array.
func (in *insert) sorted() []int32 {
	if in.locks == nil {
		return []int32{}
	}
	return in.locks
}

// nullable maps the zero value to NULL.
func nullable[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
