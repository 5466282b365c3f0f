package idempotency

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"
	"go.opentelemetry.io/otel/metric"

	"github.com/oncebox/oncebox/internal/leader"
	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
)

// Stats is the overview for operators. Each count goes up to 10,000, except Keys.
type Stats struct {
	// Keys is how many keys are remembered; beyond 10,000 it is an estimate.
	Keys int64
	// Claimed keys belong to a request that is being worked on under a lease, see [Store.Claim], or to a request whose process died and that was not
	// repeated.
	Claimed int
	// Unknown steps were begun, and nobody knows their outcome: requests with their keys are refused until somebody resolves them, see
	// [Store.Unknown]. OldestUnknown is how long ago the first of them was begun.
	Unknown       int
	OldestUnknown time.Duration
	// Expired keys have expired and were not removed yet, see [Store.Purge].
	Expired int
}

const statistics = `
SELECT (SELECT CASE WHEN x.n <= 10000 THEN x.n ELSE (
		SELECT greatest(pg_stat_get_live_tuples(c.oid), c.reltuples::bigint, x.n) FROM pg_class c WHERE c.oid = '{schema}.idempotency_keys'::regclass) END
		FROM (SELECT count(*) AS n FROM (SELECT FROM {schema}.idempotency_keys ORDER BY expires_at LIMIT 10001) few) x),
	(SELECT count(*) FROM (SELECT FROM {schema}.idempotency_keys WHERE state = 'claimed' AND expires_at > now() LIMIT 10000) x),
	u.steps, coalesce(extract(epoch FROM clock_timestamp() - u.oldest), 0)::float8,
	(SELECT count(*) FROM (SELECT FROM {schema}.idempotency_keys WHERE expires_at <= now() LIMIT 10000) x)
FROM (SELECT count(*) AS steps, min(begun_at) AS oldest FROM (
	SELECT s.begun_at FROM {schema}.idempotency_step s JOIN {schema}.idempotency_keys k ON k.key_hash = s.key_hash
	WHERE s.result IS NULL AND (k.state = 'unknown' OR k.locked_until <= clock_timestamp()) ORDER BY s.begun_at LIMIT 10000) x) u`

// Stats reads the state of the keys with a few look-ups by indexes.
func (s *Store) Stats(ctx context.Context, db bun.IDB) (Stats, error) {
	var st Stats
	var age float64
	err := s.run.AdHoc().QueryRow(ctx, db, statistics, nil, &st.Keys, &st.Claimed, &st.Unknown, &age, &st.Expired)
	if err != nil {
		return Stats{}, fmt.Errorf("idempotency: read statistics: %w", pgerr.Explain(err))
	}
	st.OldestUnknown = max(time.Duration(age*float64(time.Second)), 0)
	return st, nil
}

// gauges show the statistics.
type gauges struct {
	all                             *otelx.Gauges
	keys, claimed, unknown, expired metric.Int64ObservableGauge
	age                             metric.Float64ObservableGauge
}

func newGauges(m metric.Meter) *gauges {
	all := otelx.NewGauges(m)
	return &gauges{
		all:     all,
		keys:    all.Count("oncebox.idempotency.keys", "Idempotency keys that are stored; an estimate if there are more than 10,000"),
		claimed: all.Count("oncebox.idempotency.claimed", "Idempotency keys without an answer: a request works on them under a lease, or its process died"),
		unknown: all.Count("oncebox.idempotency.unknown", "Steps of requests whose outcome is unknown"),
		expired: all.Count("oncebox.idempotency.expired", "Idempotency keys that have expired and were not deleted yet"),
		age:     all.Seconds("oncebox.idempotency.oldest_unknown", "Age of the oldest step whose outcome is unknown"),
	}
}

// Observe shows [Store.Stats] as metrics until ctx is done. Of all processes that call it for one database, only one at a time reads and shows
// them, every 15 seconds.
func (s *Store) Observe(ctx context.Context, db bun.IDB) {
	reader := &leader.Reader[Stats]{
		Name: "idempotency.stats", SQL: s.run, DB: db, Log: s.log,
		Read: func(ctx context.Context) (Stats, error) { return s.Stats(ctx, db) },
	}
	g := s.gauges
	defer g.all.Show(func(_ context.Context, to metric.Observer) error {
		st, ok := reader.Latest()
		if !ok {
			return nil
		}
		to.ObserveInt64(g.keys, st.Keys)
		to.ObserveInt64(g.claimed, int64(st.Claimed))
		to.ObserveInt64(g.unknown, int64(st.Unknown))
		to.ObserveInt64(g.expired, int64(st.Expired))
		to.ObserveFloat64(g.age, st.OldestUnknown.Seconds())
		return nil
	})()
	reader.Run(ctx)
}

// openClaims reads the index of keys without an answer. A key of unknown outcome does not expire.
const openClaims = `
SELECT encode(k.key_hash, 'hex'), k.tenant_id, k.state = 'unknown', k.epoch, k.created_at, CASE WHEN k.owner IS NOT NULL THEN k.locked_until END,
	k.owner IS NOT NULL AND k.locked_until > clock_timestamp(),
	coalesce((SELECT json_agg(s.name ORDER BY s.begun_at, s.name) FROM {schema}.idempotency_step s
		WHERE s.key_hash = k.key_hash AND s.result IS NULL), '[]'),
	coalesce((SELECT json_agg(coalesce(s.label, '') ORDER BY s.begun_at, s.name) FROM {schema}.idempotency_step s
		WHERE s.key_hash = k.key_hash AND s.result IS NULL), '[]'),
	coalesce(k.request, ''), ` + principalShown + `, coalesce(k.caller, '')
FROM {schema}.idempotency_keys k
WHERE k.state <> 'completed' AND k.expires_at > clock_timestamp() AND ($1::text = '' OR k.tenant_id = $1::text)
ORDER BY k.created_at, k.key_hash LIMIT $2`

// Open is a key without an answer: a request works on it, or its process died.
type Open struct {
	// Key is the hash of the scope, in hexadecimal digits.
	Key string
	// Tenant is the tenant of the request, and Request its method and path, cut to 255 bytes. Request is known only while the outcome of a [StepOnce]
	// is open.
	Tenant, Request string
	// Principal is the beginning of the hash of the principal, the same for all its requests within a tenant; "" for an anonymous scope. Caller is
	// [Scope.Caller], known as long as Request.
	Principal, Caller string
	// Unknown says that the outcome of a step is unknown, and that requests with the key are refused until somebody resolves it.
	Unknown bool
	// Epoch counts the requests that have claimed the key.
	Epoch int
	// CreatedAt is when the first of them came, by the clock of the database.
	CreatedAt time.Time
	// LeaseUntil is when another request may take the key. Zero: it is free. Leased says that this time is in the future.
	LeaseUntil time.Time
	Leased     bool
	// Steps are the names of steps that were begun and have no outcome. While the key is leased, they are in progress.
	Steps []string
	// Labels are the labels of Steps, in the same order, see [WithLabel]. "": the step has no label.
	Labels []string
}

// Open lists the keys without an answer that have not expired, the oldest first: of one tenant, or of all if tenant is "". They belong to requests
// that are handled under a lease; in atomic mode the key and its answer are committed together.
func (s *Store) Open(ctx context.Context, db bun.IDB, tenant string, limit int) (list []Open, err error) {
	list, err = pgsql.Collect(s.run.Query(ctx, db, openClaims, tenant, limit), func(scan pgsql.Scan, o *Open) error {
		var until sql.NullTime
		var steps, labels []byte
		err := scan(&o.Key, &o.Tenant, &o.Unknown, &o.Epoch, &o.CreatedAt, &until, &o.Leased, &steps, &labels, &o.Request, &o.Principal, &o.Caller)
		if err != nil {
			return err
		}
		o.LeaseUntil = until.Time
		if err := errors.Join(json.Unmarshal(steps, &o.Steps), json.Unmarshal(labels, &o.Labels)); err != nil {
			return fmt.Errorf("the names of the steps: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("idempotency: list open keys: %w", pgerr.Explain(err))
	}
	return list, nil
}

// Audit lists the decisions of operators about keys, newest first. A page has at most limit entries (0: 100). before is the last entry of the
// previous page (nil: begin with the newest); only its ID counts. Entries are kept for [Config.AuditRetention].
func (s *Store) Audit(
	ctx context.Context, db bun.IDB, filter operator.AuditFilter, before *operator.AuditEntry, limit int,
) ([]operator.AuditEntry, error) {
	return s.audit.List(ctx, db, filter, before, limit)
}
