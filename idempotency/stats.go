package idempotency

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgerr"
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
