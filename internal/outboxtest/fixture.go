// Package outboxtest has the outbox that its tests work on, and what a relay would do with it.
package outboxtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/pgplan"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/outbox/state"
)

// Ann returns an operator and a reason.
func Ann() operator.By { return operator.By{Actor: "ann", Reason: "tried it"} }

// Fixture is an outbox in a schema of its own. All lanes are leased to "me", for longer than a test takes.
type Fixture struct {
	*outbox.Store
	T      *testing.T
	DB     *pgtest.DB
	Leases map[int16]lanedb.Lease
}

// New returns a fixture with empty tables. A nil Config is the zero one.
func New(t *testing.T, cfg *outbox.Config) *Fixture {
	t.Helper()
	db := pgtest.Migrated(t, pgtest.Outbox)
	if cfg == nil {
		cfg = &outbox.Config{}
	}
	if cfg.Pooler {
		db = db.Pooled(t)
	}
	cfg.Source = "test"
	f := &Fixture{Store: outbox.NewStore(db.DB, cfg), T: t, DB: db}
	f.Claim("me")
	return f
}

// Text returns a statement with the table names of this outbox.
func (f *Fixture) Text(constant string) string { return f.Handle().Run.Text(constant) }

// ExplainOnce returns the plan of an unprepared statement with these arguments; operators' statements are not prepared.
func (f *Fixture) ExplainOnce(statement string, args ...any) string {
	f.T.Helper()
	rows := f.Handle().AdHoc().Query(f.T.Context(), f.DB.DB, "EXPLAIN "+statement, args...)
	plan, err := pgsql.Collect(rows, func(scan pgsql.Scan, line *string) error { return scan(line) })
	require.NoError(f.T, err)
	return strings.Join(plan, "\n")
}

// Explain returns the generic plan, which PostgreSQL uses for a prepared statement in the end.
func (f *Fixture) Explain(statement string) string {
	f.T.Helper()
	plan, err := pgplan.Generic(f.T.Context(), f.DB.DB.DB, f.Text(statement))
	require.NoError(f.T, err)
	return plan.Text
}

// Record stores an event of an order in a transaction of its own. key is the order's id, and name the event's type and
// payload. It returns the event's id.
func (f *Fixture) Record(key, name string, opts ...event.AddOption) string {
	f.T.Helper()
	opts = append([]event.AddOption{event.WithAggregate("order", key, 1), event.WithType(name)}, opts...)
	id, err := pgtest.Add(f.T.Context(), f.DB.DB, f, "order", []byte(name), opts...)
	require.NoError(f.T, err)
	return id
}

// RecordUnordered is Record for an event without an order.
func (f *Fixture) RecordUnordered(name string, opts ...event.AddOption) {
	f.T.Helper()
	_, err := pgtest.Add(f.T.Context(), f.DB.DB, f, "order", []byte(name), append(opts, event.WithType(name))...)
	require.NoError(f.T, err)
}

// Commit runs fn in a transaction.
func (f *Fixture) Commit(fn func(bun.Tx)) {
	tx, err := f.DB.BeginTx(f.T.Context(), nil)
	require.NoError(f.T, err)
	fn(tx)
	require.NoError(f.T, tx.Commit())
}

// Exec runs a statement.
func (f *Fixture) Exec(query string, args ...any) {
	f.T.Helper()
	_, err := f.DB.ExecContext(f.T.Context(), query, args...)
	require.NoError(f.T, err)
}

// Count returns a number of rows. query is a table, perhaps with conditions.
func (f *Fixture) Count(query string, args ...any) (n int) {
	f.T.Helper()
	require.NoError(f.T, f.DB.NewRaw("SELECT count(*) FROM "+query, args...).Scan(f.T.Context(), &n))
	return n
}

// AwaitLocks waits until n sessions that have used a table wait for a lock.
func (f *Fixture) AwaitLocks(table string, n int, what string) {
	f.T.Helper()
	await.True(f.T, func() bool {
		return f.Count(`pg_stat_activity WHERE wait_event_type = 'Lock'
			AND pid IN (SELECT pid FROM pg_locks WHERE relation = ?::regclass)`, table) == n
	}, what)
}

// Statuses returns, for each type of event, its status and how often it was refused: "FAILED/1".
func (f *Fixture) Statuses() map[string]string {
	f.T.Helper()
	var records []state.Record
	require.NoError(f.T, f.DB.NewSelect().Model(&records).Scan(f.T.Context()))
	out := map[string]string{}
	for _, r := range records {
		out[r.EventType] = fmt.Sprintf("%s/%d", r.Status, r.RetryCount)
	}
	return out
}

// Disorder returns what state.Reader.Disorder finds.
func (f *Fixture) Disorder() []state.Disorder {
	f.T.Helper()
	found, err := f.State().Disorder(f.T.Context())
	require.NoError(f.T, err)
	return found
}
