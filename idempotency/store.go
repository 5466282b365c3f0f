package idempotency

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"time"

	"github.com/uptrace/bun"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/oncebox/oncebox/internal/audit"
	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/telemetry"
)

const stateCompleted = "completed"

const (
	tryLock = `pg_try_advisory_xact_lock(hashtextextended(encode($1::bytea, 'hex'), '{schema}.idempotency_keys'::regclass::oid::bigint))`

	// lock locks the key until the end of the transaction, without waiting. The oid of the table keeps the locks of different schemas apart. $2 is the
	// idle_in_transaction_session_timeout, "" to leave it unchanged. A session that has a limit keeps it, because setting one costs more than the
	// lock: up to version 15 the end of the transaction then checks all settings.
	lock = `SELECT ` + tryLock + `,
    CASE WHEN $2::text <> '' AND current_setting('idle_in_transaction_session_timeout') = '0'
    THEN set_config('idle_in_transaction_session_timeout', $2, true) END`

	lookup = `SELECT state, fingerprint_tag, fingerprint, status, headers, omitted, body,
    expires_at > clock_timestamp() + interval '1 minute' -- cachedFor
FROM {schema}.idempotency_keys WHERE key_hash = $1 AND expires_at > clock_timestamp()`

	// lookupNew is lookup in the transaction of the lock. For a new key it also returns the id of the transaction. A replay or a conflict gets no id,
	// because every id in use makes the snapshots of all other transactions slower. It takes the lock once more to know that this transaction holds
	// it, which costs nothing.
	lookupNew = `SELECT k.state, k.fingerprint_tag, k.fingerprint, k.status, k.headers, k.omitted, k.body,
    CASE WHEN k.state IS NULL AND ` + tryLock + ` THEN pg_current_xact_id()::text END
FROM (SELECT) one LEFT JOIN {schema}.idempotency_keys k ON k.key_hash = $1 AND k.expires_at > clock_timestamp()`

	// A row that expired and was not purged yet is replaced as a whole. A row that did not expire is never changed: somebody has completed the key
	// under another lock, and the transaction fails, see IsTaken. It must fail, because a COMMIT that is sent with the statement would succeed after a
	// statement that does nothing.
	complete = `INSERT INTO {schema}.idempotency_keys AS k (key_hash, tenant_id, principal_hash, state, fingerprint_tag, fingerprint,
    status, headers, body, omitted, completed_at, expires_at)
SELECT $1, $2, $3, 'completed', $4, $5, $6, $7::json, $8, $9, t.now,
    CASE WHEN $10::float8 < 0 THEN 'infinity' ELSE t.now + make_interval(secs => $10::float8) END
FROM (SELECT clock_timestamp() AS now) t
ON CONFLICT (key_hash) DO UPDATE SET
    state = CASE WHEN k.expires_at <= clock_timestamp() THEN excluded.state ELSE {schema}.idempotency_taken() END,
    tenant_id = excluded.tenant_id, principal_hash = excluded.principal_hash, fingerprint_tag = excluded.fingerprint_tag,
    fingerprint = excluded.fingerprint, status = excluded.status, headers = excluded.headers, body = excluded.body,
    omitted = excluded.omitted, created_at = excluded.created_at, completed_at = excluded.completed_at,
    expires_at = excluded.expires_at, locked_until = NULL, owner = NULL, request = NULL, caller = NULL, epoch = k.epoch + 1`

	completed = `SELECT EXISTS (SELECT FROM {schema}.idempotency_keys WHERE key_hash = $1 AND state = 'completed'
    AND xmin::text = mod($2::text::numeric, 4294967296)::text
    AND status = $3 AND headers::text = $4::text AND body IS NOT DISTINCT FROM $5::bytea AND omitted IS NOT DISTINCT FROM $6::text)`

	release = `DELETE FROM {schema}.idempotency_keys WHERE key_hash = $1 AND state = 'completed'`
)

// Store keeps answers in the table idempotency_keys. It is safe for concurrent use.
type Store struct {
	cfg       Config
	ttl       any // the argument of complete
	run       *pgsql.Runner
	audit     *audit.Log
	confirmed *pgsql.Runner // for writes that an answer relies on, and that never wait for long
	recent    recent
	cache     *cache

	log    *slog.Logger
	tracer trace.Tracer
	purged metric.Int64Counter
	gauges *gauges
}

// NewStore returns a store. Package migrations makes its tables.
func NewStore(cfg *Config) *Store {
	c := cfg.WithDefaults()
	run := pgsql.New(c.Schema, c.Pooler)
	meter := otelx.Meter(c.Telemetry.MeterProvider, "idempotency")
	return &Store{
		cfg: c, ttl: c.TTL.Seconds(), run: run, audit: &audit.Log{Part: operator.PartIdempotency, Run: run.AdHoc(), Retention: c.AuditRetention},
		confirmed: run.Confirmed(), cache: newCache(c.Cache),
		log:    otelx.Logger(c.Telemetry.Logger),
		tracer: otelx.Tracer(c.Telemetry.TracerProvider, "idempotency"),
		purged: otelx.Started(meter, "oncebox.idempotency.purged", "Expired idempotency keys that were deleted", nil),
		gauges: newGauges(meter),
	}
}

// Key checks a scope and hashes it. The errors are [ErrNoPrincipal] and [*ScopeError].
func (s *Store) Key(scope Scope) (Key, error) {
	if scope.Tenant == "" {
		scope.Tenant = s.cfg.DefaultTenantID
	}
	if err := scope.validate(); err != nil {
		return Key{}, err
	}
	return Key{
		hash: scope.hash(), tenant: scope.Tenant, principal: hashPrincipal(scope.Tenant, scope.Principal),
		request: scope.request(), caller: shown(scope.Caller),
	}, nil
}

// Telemetry returns where logs, traces and metrics go. It is the default of packages that show the store, such as the console. The Logger is not
// nil.
func (s *Store) Telemetry() telemetry.Config {
	return telemetry.Config{Logger: s.log, TracerProvider: s.cfg.Telemetry.TracerProvider, MeterProvider: s.cfg.Telemetry.MeterProvider}
}

// TTL returns how long answers are kept; [KeepForever] if they do not expire.
func (s *Store) TTL() time.Duration { return s.cfg.TTL }

// BeginOption changes how a key is begun.
type BeginOption func(*beginOptions)

type beginOptions struct{ idle any }

// WithIdleTimeout makes PostgreSQL end the session when it waits longer than d, at least 1ms, for the next statement of the transaction. So the
// key, and all other locks of the transaction, are free again after a process froze or its machine vanished; otherwise that takes until TCP gives
// up, which may be hours. It applies until the transaction ends, and only in sessions without a limit of their own: those of pools of config.OpenDB
// have one, config.Config.IdleInTransaction.
func WithIdleTimeout(d time.Duration) BeginOption {
	var idle any = strconv.FormatInt(min(max(d.Milliseconds(), 1), math.MaxInt32), 10)
	return func(o *beginOptions) { o.idle = idle }
}

// lockArgs returns the arguments of lock. The first is that of lookupNew as well.
func lockArgs(key *Key, opts []BeginOption) []any {
	o := beginOptions{idle: ""}
	for _, opt := range opts {
		opt(&o)
	}
	return []any{key.hash[:], o.idle}
}

// Begin locks the key until the end of the transaction and looks it up, with two statements: the second one must see the answer that the previous
// holder of the lock committed. If it returns neither a response nor an error, the key is new: the caller does the work and calls [Store.Complete],
// or rolls back, which frees the key. If it returns a response, the work was done before. The errors are [ErrInProgress], at once and without
// waiting, [ErrMismatch], [ErrStepUnknown] for a key that was claimed once, and errors of the database.
//
// The transaction must be READ COMMITTED, or the look-up may miss an answer that was just committed; PostgreSQL then refuses the completion.
func (s *Store) Begin(ctx context.Context, tx bun.IDB, key Key, fp Fingerprint, opts ...BeginOption) (*Response, error) {
	if !isTx(tx) {
		return nil, fmt.Errorf("idempotency: Begin needs a transaction, as a bun.Tx: in a %T the lock would be gone before it returns", tx)
	}
	var locked bool
	var idle sql.NullString
	if err := s.run.QueryRow(ctx, tx, lock, lockArgs(&key, opts), &locked, &idle); err != nil {
		return nil, beginError(key, err)
	}
	row, err := s.look(ctx, tx, key)
	if err != nil {
		return nil, beginError(key, err)
	}
	return s.begun(locked, row, key, fp)
}

// isTx is false for a connection, as for the pool: its statements may be transactions of their own.
func isTx(db bun.IDB) bool {
	switch db.(type) {
	case *bun.DB, bun.Conn:
		return false
	}
	return true
}

// begun returns the result of Begin. A stored answer needs no lock, since it never changes, and neither does a key of unknown outcome, on which
// nobody works. So many retries at the same time lock each other out only as long as there is no answer.
func (s *Store) begun(locked bool, row *record, key Key, fp Fingerprint) (*Response, error) {
	if !locked && row.state.String != stateCompleted && row.state.String != stateUnknown {
		return nil, ErrInProgress
	}
	return s.found(row, key, fp)
}

func beginError(key Key, err error) error {
	return fmt.Errorf("idempotency: begin key %s: %w", key, pgerr.Explain(err))
}

// Lookup reads without a lock, outside any transaction if db is a pool. If it returns neither a response nor an error, there is no answer now.
// Other callers may share the header and the body, so do not change them.
//
// It caches the answer, see [Config.Cache].
func (s *Store) Lookup(ctx context.Context, db bun.IDB, key Key, fp Fingerprint) (*Response, error) {
	asked := time.Now()
	if found := s.cache.get(db, key, asked); found != nil {
		return found.answer(fp)
	}
	row, err := s.look(ctx, db, key)
	if err != nil {
		return nil, fmt.Errorf("idempotency: look up key %s: %w", key, pgerr.Explain(err))
	}
	resp, err := s.found(row, key, fp)
	if resp != nil && row.lasts.Bool {
		s.cache.put(db, key, row.print(), *resp, asked)
	}
	return resp, err
}

func (s *Store) look(ctx context.Context, db bun.IDB, key Key) (*record, error) {
	row := &record{}
	_, err := pgsql.One(s.run.Query(ctx, db, lookup, key.hash[:]), func(scan pgsql.Scan) error {
		return scan(append(row.dest(), &row.lasts)...)
	})
	return row, err
}

func (s *Store) found(row *record, key Key, fp Fingerprint) (*Response, error) {
	if row.state.Valid {
		s.recent.mark(key)
	}
	return row.answer(fp)
}

// Complete stores the answer in the transaction that began the key. [ErrInProgress] means that somebody else completed
// the key in spite of the lock; the transaction must be rolled back then, and the key begun again.
func (s *Store) Complete(ctx context.Context, tx bun.IDB, key Key, fp Fingerprint, resp Response) error {
	args, err := s.completion(&key, &fp, &resp)
	if err != nil {
		return err
	}
	if _, err := s.confirmed.Exec(ctx, tx, complete, args...); err != nil {
		if isTaken(err) {
			return fmt.Errorf("%w: key %s was completed meanwhile", ErrInProgress, key)
		}
		return fmt.Errorf("idempotency: complete key %s: %w", key, pgerr.Explain(err))
	}
	return nil
}

// completion returns the arguments of complete.
func (s *Store) completion(key *Key, fp *Fingerprint, resp *Response) ([]any, error) {
	headers, body, omitted, err := resp.columns()
	if err != nil {
		return nil, err
	}
	return []any{key.hash[:], key.tenant, key.principal.column(), fp.Tag, fp.Sum[:], resp.Status, headers, body, omitted, s.ttl}, nil
}

// codeTaken is the SQLSTATE of the function idempotency_taken: one of our own, in a class that PostgreSQL leaves to others.
const codeTaken = "OB001"

func isTaken(err error) bool { return pgerr.Code(err) == codeTaken }

// Release removes the answer that is stored under the key, so that the next request with it does the work again. A transaction that began the key
// does not need it: rolling back is enough. It returns false if there is no answer. A claim and its steps are not changed: see [Claim.Release], and
// [Store.Resolve] for unknown steps.
//
// Stores of other processes may serve the answer from memory for a minute longer, see [Config.Cache], and this one as well if db is a transaction
// that ends later than that. When the same request is executed again, it calls other services with the same keys as before, see [Key.OutsideOf], so
// they may regard these calls as repeated.
func (s *Store) Release(ctx context.Context, db bun.IDB, key Key) (bool, error) {
	s.cache.release(key, time.Now())
	n, err := s.run.Exec(ctx, db, release, key.hash[:])
	s.cache.release(key, time.Now()) // the minute begins when it is gone
	if err != nil {
		return false, fmt.Errorf("idempotency: release key %s: %w", key, pgerr.Explain(err))
	}
	return n > 0, nil
}
