package idempotency

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"

	"github.com/uptrace/bun"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/internal/pgsql"
)

const stateCompleted = "completed"

const (
	begin = `SELECT locked, state, fingerprint_tag, fingerprint, status, headers, omitted, body
FROM {schema}.idempotency_begin($1)`

	lookup = `SELECT state, fingerprint_tag, fingerprint, status, headers, omitted, body
FROM {schema}.idempotency_keys WHERE key_hash = $1 AND expires_at > clock_timestamp()`

	// A row that expired and was not purged yet is replaced as a whole. One that did not expire is never touched: then
	// somebody completed the key under another lock, and nothing is inserted.
	complete = `INSERT INTO {schema}.idempotency_keys AS k (key_hash, tenant_id, state, fingerprint_tag, fingerprint,
    status, headers, body, omitted, completed_at, expires_at)
SELECT $1, $2, 'completed', $3, $4, $5, $6::json, $7, $8, t.now,
    CASE WHEN $9::float8 < 0 THEN 'infinity' ELSE t.now + make_interval(secs => $9::float8) END
FROM (SELECT clock_timestamp() AS now) t
ON CONFLICT (key_hash) DO UPDATE SET
    tenant_id = excluded.tenant_id, state = excluded.state, fingerprint_tag = excluded.fingerprint_tag,
    fingerprint = excluded.fingerprint, status = excluded.status, headers = excluded.headers, body = excluded.body,
    omitted = excluded.omitted, created_at = excluded.created_at, completed_at = excluded.completed_at,
    expires_at = excluded.expires_at, locked_until = NULL, owner = NULL, epoch = k.epoch + 1
WHERE k.expires_at <= clock_timestamp()
RETURNING pg_current_xact_id()::text`

	release = `DELETE FROM {schema}.idempotency_keys WHERE key_hash = $1`
)

// Store keeps answers in the table idempotency_keys. It is safe for concurrent use.
type Store struct {
	cfg    Config
	run    *pgsql.Runner
	recent recent

	log    *slog.Logger
	tracer trace.Tracer
	purged metric.Int64Counter
}

// NewStore returns a store. The table is made by package migrations.
func NewStore(cfg *Config) *Store {
	c := cfg.withDefaults()
	return &Store{
		cfg: c, run: pgsql.New(c.Schema, c.Pooler),
		log:    otelx.Logger(c.Logger),
		tracer: otelx.Tracer(c.TracerProvider, "idempotency"),
		purged: otelx.Counter(otelx.Meter(c.MeterProvider, "idempotency"), "oncebox.idempotency.purged", "Expired keys that were removed"),
	}
}

// Begin locks the key to the end of the transaction and looks it up. nil and no error: the key is new, and the caller
// may do the work and call [Store.Complete], or roll back, which frees the key. A response: the work was done before.
// The errors are [ErrInProgress], at once and without waiting, [ErrMismatch], and what the database reports.
//
// The transaction must be READ COMMITTED, or the look-up may miss what was committed last; PostgreSQL then refuses the
// completion.
func (s *Store) Begin(ctx context.Context, tx bun.IDB, key Key, fp Fingerprint) (*Response, error) {
	if _, ok := tx.(*bun.DB); ok {
		return nil, errors.New("idempotency: Begin needs a transaction: the lock would be gone before it returns")
	}
	var locked bool
	var row record
	if err := s.run.QueryRow(ctx, tx, begin, []any{key.hash[:]}, append([]any{&locked}, row.dest()...)...); err != nil {
		return nil, fmt.Errorf("idempotency: begin key %s: %w", key, pgsql.Explain(err))
	}
	if !locked {
		return nil, ErrInProgress
	}
	return s.found(&row, key, fp)
}

// Lookup reads without a lock, outside any transaction if db is a pool. nil and no error: there is no answer now.
func (s *Store) Lookup(ctx context.Context, db bun.IDB, key Key, fp Fingerprint) (*Response, error) {
	rows, err := s.run.Query(ctx, db, lookup, key.hash[:])
	if err != nil {
		return nil, fmt.Errorf("idempotency: look up key %s: %w", key, pgsql.Explain(err))
	}
	defer rows.Close()
	var row record
	if rows.Next() {
		err = rows.Scan(row.dest()...)
	}
	if err := errors.Join(err, rows.Err()); err != nil {
		return nil, fmt.Errorf("idempotency: look up key %s: %w", key, pgsql.Explain(err))
	}
	return s.found(&row, key, fp)
}

func (s *Store) found(row *record, key Key, fp Fingerprint) (*Response, error) {
	if row.state.Valid {
		s.recent.mark(key)
	}
	return row.answer(fp)
}

// Recent tells whether this store has lately completed the key or seen it completed, so that a [Store.Lookup] is likely
// to find it. It is a hint without any promise, and costs nothing.
func (s *Store) Recent(key Key) bool { return s.recent.has(key) }

// Complete stores the answer in the transaction that began the key. [ErrInProgress] means that somebody else completed
// the key in spite of the lock; the transaction must be rolled back then, and the key begun again.
func (s *Store) Complete(ctx context.Context, tx bun.IDB, key Key, fp Fingerprint, resp Response) error {
	_, err := s.CompleteProbe(ctx, tx, key, fp, resp)
	return err
}

// CompleteProbe is [Store.Complete] and returns the id of the transaction, for uow.Unit.Probed.
func (s *Store) CompleteProbe(ctx context.Context, tx bun.IDB, key Key, fp Fingerprint, resp Response) (xid string, err error) {
	headers, body, omitted, err := resp.columns()
	if err != nil {
		return "", err
	}
	err = s.run.QueryRow(ctx, tx, complete, []any{key.hash[:], key.tenant, fp.Tag, fp.Sum[:], resp.Status, headers, body,
		omitted, s.cfg.TTL.Seconds()}, &xid)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return "", fmt.Errorf("%w: key %s was completed meanwhile", ErrInProgress, key)
	case err != nil:
		return "", fmt.Errorf("idempotency: complete key %s: %w", key, pgsql.Explain(err))
	}
	s.recent.mark(key)
	return xid, nil
}

// Release forgets what is stored under the key, so that the next request with it does the work again. A transaction
// that began the key does not need it: rolling back is enough. false: nothing was stored.
func (s *Store) Release(ctx context.Context, db bun.IDB, key Key) (bool, error) {
	n, err := s.run.Exec(ctx, db, release, key.hash[:])
	if err != nil {
		return false, fmt.Errorf("idempotency: release key %s: %w", key, pgsql.Explain(err))
	}
	return n > 0, nil
}
