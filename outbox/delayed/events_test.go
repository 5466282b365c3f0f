package delayed_test

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
	outboxdelayed "github.com/oncebox/oncebox/outbox/delayed"
	"github.com/oncebox/oncebox/outbox/state"
)

// in runs fn in a transaction that commits.
func (f *fixture) in(fn func(ctx context.Context, tx bun.Tx) error) error {
	return f.DB.RunInTx(f.T.Context(), nil, fn)
}

func (f *fixture) cancel(id string) error {
	return f.in(func(ctx context.Context, tx bun.Tx) error { return f.Delayed().Cancel(ctx, tx, id) })
}

// delay does with the rows what a projector does.
func (f *fixture) delay(rows ...state.Row) (delayed []outboxdb.RowID) {
	f.T.Helper()
	var leases []lanedb.Lease
	var ids []outboxdb.RowID
	for _, r := range rows {
		leases = append(leases, f.Leases[r.Lane])
		ids = append(ids, outboxdb.RowID{Lane: r.Lane, Seq: r.Sequence})
	}
	delayed, held, err := lanedb.Of(f.Handle()).Moves.Delay(f.T.Context(), leases, ids)
	require.NoError(f.T, err)
	require.NotEmpty(f.T, held)
	return delayed
}

var tomorrow = event.WithNotBefore(time.Now().Add(24 * time.Hour))

// A delayed row has its own id as its ordering key, so it stands in the order of no other row. Its other fields are
// those of its event.
func TestDelayedRowIsInNobodysOrder(t *testing.T) {
	f := newFixture(t, nil)
	id := f.Record("a", "reminder", tomorrow)
	f.Record("a", "plain")
	rows := f.Fetch()
	require.Len(t, rows, 2)
	for _, r := range rows {
		if r.ID != id {
			require.Equal(t, "default|order|a", r.Key)
			continue
		}
		require.True(t, r.IsTimed())
		require.Equal(t, id, r.Delivery.OrderingKey)
		require.Equal(t, id, r.RoutingKey)
		require.Equal(t, "a", r.AggregateID)
		f.delay(r)
	}
	require.Zero(t, f.Count("outbox_block"))
	history, err := f.State().EventsByAggregate(t.Context(), "", "order", "a", 0, 0)
	require.NoError(t, err)
	require.Len(t, history, 2)
	held, err := f.Delayed().List(t.Context(), f.DB.DB, outboxdelayed.Filter{}, nil, 0)
	require.NoError(t, err)
	require.Equal(t, id, held[0].Delivery.OrderingKey)
}

func TestCancelWhereverTheRowIs(t *testing.T) {
	for name, prepare := range map[string]func(f *fixture, id string){
		"not fetched": func(*fixture, string) {},
		"fetched":     func(f *fixture, _ string) { f.Fetch() },
		"held":        func(f *fixture, _ string) { f.delay(f.Fetch()...) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, nil)
			id := f.Record("a", "reminder", tomorrow)
			prepare(f, id)
			require.ErrorIs(t, f.in(func(ctx context.Context, tx bun.Tx) error {
				require.NoError(t, f.Delayed().Cancel(ctx, tx, id))
				return sql.ErrTxDone // it is dropped
			}), sql.ErrTxDone)
			require.Contains(t, f.Statuses(), "reminder")
			require.ErrorIs(t, f.in(func(ctx context.Context, tx bun.Tx) error {
				return f.Delayed().Cancel(event.WithTenant(ctx, "other"), tx, id)
			}), outboxdelayed.ErrTooLate)
			require.NoError(t, f.cancel(id))
			require.Empty(t, f.Statuses())
			require.ErrorIs(t, f.cancel(id), outboxdelayed.ErrTooLate, "a second time")
		})
	}
}

// A projector has read the row and wants to hold it until it is due, but the event is cancelled meanwhile. There is nothing to hold then.
func TestCancelOfARowThatAProjectorIsAboutToHold(t *testing.T) {
	f := newFixture(t, nil)
	id := f.Record("a", "reminder", tomorrow)
	rows := f.Fetch()
	require.NoError(t, f.in(func(ctx context.Context, tx bun.Tx) error {
		require.NoError(t, f.Delayed().Cancel(ctx, tx, id))
		require.Empty(t, f.delay(rows...), "and the projector has not waited for the transaction")
		return nil
	}))
	require.Empty(t, f.delay(rows...))
	require.Empty(t, f.Statuses())
}

// A transaction that began before the row was moved sees it where it was.
func TestCancelWithAnOldSnapshot(t *testing.T) {
	f := newFixture(t, nil)
	id := f.Record("a", "reminder", tomorrow)
	tx, err := f.DB.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	require.NoError(t, err)
	var n int
	require.NoError(t, tx.QueryRow("SELECT count(*) FROM outbox").Scan(&n))
	f.delay(f.Fetch()...)
	require.ErrorContains(t, f.Delayed().Cancel(t.Context(), tx, id), "40001")
	require.NoError(t, tx.Rollback())
	require.NoError(t, f.cancel(id))
}

func TestCancelThatIsTooLate(t *testing.T) {
	past := event.WithNotBefore(time.Now().Add(-time.Second))
	for name, prepare := range map[string]func(f *fixture) string{
		"due, not fetched":   func(f *fixture) string { return f.Record("a", "e", past) },
		"due, held":          func(f *fixture) string { id := f.Record("a", "e", past); f.delay(f.Fetch()...); return id },
		"never delayed":      func(f *fixture) string { return f.Record("a", "e") },
		"in an order":        func(f *fixture) string { return f.Record("a", "e", tomorrow, event.WithOrderingKey("a")) },
		"nobody's id":        func(*fixture) string { return "0190a6f0-0000-7000-8000-000000000001" },
		"no id":              func(*fixture) string { return "reminder" },
		"published":          func(f *fixture) string { id := f.Record("a", "e", past); f.Settle(); return id },
		"retried by a relay": func(f *fixture) string { return f.refusedOnce(past) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, nil)
			require.NoError(t, f.Upkeep().EnsurePartitions(t.Context()))
			id := prepare(f)
			before := f.Statuses()
			require.ErrorIs(t, f.cancel(id), outboxdelayed.ErrTooLate)
			require.ErrorIs(t, f.in(func(ctx context.Context, tx bun.Tx) error {
				return f.Delayed().Reschedule(ctx, tx, id, time.Now().Add(time.Hour))
			}), outboxdelayed.ErrTooLate)
			require.Equal(t, before, f.Statuses())
		})
	}
}

// The time comes while the transaction waits for the lock of the row. Its clock is the test's: the search path has it before PostgreSQL's.
func TestCancelLooksAtTheClockOnceMoreWhenItHasTheLock(t *testing.T) {
	for table, hold := range map[string]bool{"outbox": false, "outbox_held": true} {
		for what, change := range map[string]func(f *fixture, tx bun.Tx, id string) error{
			"Cancel": func(f *fixture, tx bun.Tx, id string) error { return f.Delayed().Cancel(t.Context(), tx, id) },
			"Reschedule": func(f *fixture, tx bun.Tx, id string) error {
				return f.Delayed().Reschedule(t.Context(), tx, id, time.Now().Add(72*time.Hour))
			},
		} {
			t.Run(what+" in "+table, func(t *testing.T) {
				f := newFixture(t, nil)
				id := f.Record("a", "reminder", tomorrow)
				if hold {
					f.delay(f.Fetch()...)
				}
				_, err := f.DB.Exec(`CREATE SEQUENCE hours MINVALUE 0 START 0; CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql
					AS $f$ SELECT pg_catalog.clock_timestamp() + last_value * interval '1 hour' FROM hours $f$`)
				require.NoError(t, err)
				other, err := f.DB.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				defer func() { _ = other.Rollback() }()
				var pid int
				require.NoError(t, other.NewRaw("SELECT pg_backend_pid() FROM ?0 WHERE id = ?1 FOR UPDATE", bun.Ident(table), id).Scan(t.Context(), &pid))

				changed := make(chan error, 1)
				go func() {
					changed <- f.in(func(ctx context.Context, tx bun.Tx) error {
						_, err := tx.ExecContext(ctx, "SET LOCAL search_path = ?0, pg_catalog", bun.Ident(f.DB.Schema))
						return errors.Join(err, change(f, tx, id))
					})
				}()
				await.True(t, func() bool {
					n, err := f.DB.NewSelect().Table("pg_stat_activity").Where("? = ANY (pg_blocking_pids(pid))", pid).Count(t.Context())
					return err == nil && n == 1
				}, "it waits for the row, whose time has not come")
				_, err = f.DB.Exec("SELECT setval('hours', 48)")
				require.NoError(t, err)
				require.NoError(t, other.Rollback())
				require.ErrorIs(t, await.Receive(t, changed, "it has the lock"), outboxdelayed.ErrTooLate)
				require.Equal(t, 1, f.Count(table+" WHERE id = ? AND not_before < now() + interval '25 hours'", id))
			})
		}
	}
}

// refusedOnce adds an event that waits for its second attempt.
func (f *fixture) refusedOnce(opts ...event.AddOption) string {
	id := f.Record("a", "e", opts...)
	row := f.Fetch()[0]
	f.delay(row)
	no := lanedb.Outcome{Seq: row.Sequence, Wait: time.Hour, Error: "no"}
	require.NoError(f.T, lanedb.Of(f.Handle()).Held.RetryHeld(f.T.Context(), f.Leases[row.Lane], f.Change(row.Lane), no))
	return id
}

func TestReschedule(t *testing.T) {
	for name, hold := range map[string]bool{"not fetched": false, "held": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, nil)
			id := f.Record("a", "reminder", tomorrow)
			rows := f.Fetch()
			if hold {
				f.delay(rows...)
			}
			at := time.Now().Add(48 * time.Hour).UTC().Truncate(time.Microsecond)
			move := func(at time.Time) error {
				return f.in(func(ctx context.Context, tx bun.Tx) error { return f.Delayed().Reschedule(ctx, tx, id, at) })
			}
			require.NoError(t, move(at))
			if !hold {
				require.Len(t, f.delay(rows...), 1) // as the projector read them before
			}
			list, err := f.Delayed().List(t.Context(), f.DB.DB, outboxdelayed.Filter{}, nil, 0)
			require.NoError(t, err)
			require.Len(t, list, 1)
			require.Equal(t, at, list[0].Delivery.NotBefore)
			require.Equal(t, 1, f.Count("outbox_held WHERE retry_after = not_before"))
			require.ErrorIs(t, move(time.Time{}), event.ErrInvalid)
			require.NoError(t, move(time.Now().Add(-time.Second)))
			require.Equal(t, []string{"reminder"}, f.Due())
		})
	}
}

func TestDelayedList(t *testing.T) {
	f := newFixture(t, nil)
	at := func(hours int) event.AddOption {
		return event.WithNotBefore(time.Now().Add(time.Duration(hours) * time.Hour))
	}
	for i, key := range []string{"a", "b", "a"} {
		f.Record(key, strconv.Itoa(i), at(10-i))
	}
	f.delay(f.Fetch()...)
	f.Record("a", "3", at(5), event.WithTenantID("acme"))
	f.Record("a", "4", at(20))
	f.Record("a", "in an order", at(1), event.WithOrderingKey("k"))
	f.Record("a", "due", at(-1))
	names := func(db bun.IDB, filter outboxdelayed.Filter) (types []string) {
		var last *state.Row
		for {
			page, err := f.Delayed().List(t.Context(), db, filter, last, 2)
			require.NoError(t, err)
			if len(page) == 0 {
				return types
			}
			for i := range page {
				types, last = append(types, page[i].Type), &page[i]
				require.Empty(t, page[i].Payload)
			}
		}
	}
	require.Equal(t, []string{"3", "2", "1", "0", "4"}, names(f.DB.DB, outboxdelayed.Filter{}))
	require.Equal(t, []string{"3"}, names(f.DB.DB, outboxdelayed.Filter{TenantID: "acme"}))
	of := outboxdelayed.Filter{TenantID: "default", AggregateType: "order", AggregateID: "a"}
	require.Equal(t, []string{"2", "0", "4"}, names(f.DB.DB, of))
	require.NoError(t, f.in(func(ctx context.Context, tx bun.Tx) error {
		list, err := f.Delayed().List(ctx, tx, of, nil, 1)
		require.NoError(t, err)
		require.NoError(t, f.Delayed().Cancel(ctx, tx, list[0].ID))
		require.Equal(t, []string{"0", "4"}, names(tx, of))
		return nil
	}))
	_, err := f.Delayed().List(t.Context(), f.DB.DB, outboxdelayed.Filter{TenantID: "a\x00"}, nil, 0)
	require.ErrorIs(t, err, event.ErrInvalid)
}
