package oncebox_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/uow"
)

// outdating are ways in which statements that were prepared become useless, each given what number of times it happens.
var outdating = map[string]func(n int) string{
	"ADD COLUMN": func(n int) string { return fmt.Sprintf("ALTER TABLE things ADD COLUMN extra%d text", n) },
	"ALTER TYPE": func(n int) string {
		return "ALTER TABLE things ALTER COLUMN total TYPE " + []string{"numeric", "bigint"}[n%2]
	},
	"DROP and CREATE": func(n int) string {
		return fmt.Sprintf("DROP TABLE things; CREATE TABLE things (n int, total bigint, new%d int); INSERT INTO things VALUES (1, 1)", n)
	},
}

// read reads everything of a table, with a statement that pgx prepares.
func read(ctx context.Context, u *uow.Unit) error {
	rows, err := u.Pgx().Query(ctx, "SELECT * FROM things WHERE n > $1", 0)
	if err != nil {
		return err
	}
	_, err = pgx.CollectRows(rows, pgx.RowToMap)
	return err
}

// warm has connections prepare the statement.
func (e *ender) warm(n int) {
	var ready, done sync.WaitGroup
	ready.Add(n)
	for range n {
		done.Go(func() {
			_ = e.UoW.Do(e.Context(), func(ctx context.Context, u *uow.Unit) error {
				err := read(ctx, u)
				ready.Done()
				ready.Wait() // all of them at once, so each has a connection of its own
				return err
			}, uow.WithoutRetry())
		})
	}
	done.Wait()
}

// wherePrepared runs a test on each kind of pool whose connections keep what was prepared.
func wherePrepared(t *testing.T, fn func(t *testing.T, pool string, e *ender)) {
	t.Helper()
	for name, open := range pools {
		if name == "OpenDB, pooler" {
			continue // nothing is prepared
		}
		t.Run(name, func(t *testing.T) {
			db := pgtest.Migrated(t)
			_, err := db.Exec("CREATE TABLE things (n int, total bigint); INSERT INTO things VALUES (1, 1)")
			require.NoError(t, err)
			e := newEnder(t, db, open, false)
			fn(t, name, e)
		})
	}
}

// A statement that was prepared before its table was changed fails nobody: not a unit, a request or a message. Each is run at most once more.
func TestOutdatedStatementsAreRunAgain(t *testing.T) {
	const connections = 4
	wherePrepared(t, func(t *testing.T, name string, e *ender) {
		n := 0
		for change, text := range outdating {
			for kind, run := range kinds {
				cell := kind + ", " + change
				// Begin runs nothing again, and a handler of HTTP keeps the error to itself, which only connections of OpenDB notice.
				if kind == "begun unit" || strings.Contains(kind, "request") || strings.Contains(kind, "httpmw") && strings.HasPrefix(name, "Use") {
					continue
				}
				n++
				e.warm(connections)
				_, err := e.db.Exec(text(n))
				require.NoError(t, err)
				runs := 0
				e.function = func(ctx context.Context) error {
					runs++
					u := uow.MustFromContext(ctx)
					if err := read(ctx, u); err != nil {
						return err
					}
					return u.Add("orders", []byte("x"))
				}
				require.NoError(t, run(e), cell)
				require.LessOrEqual(t, runs, 4, cell) // two messages, each once more
			}
		}
		var failures int
		require.NoError(t, e.db.NewRaw("SELECT count(*) FROM inbox_attempt").Scan(t.Context(), &failures))
		require.Zero(t, failures, "no try was spent")
	})
}

// Twelve connections are outdated, and sixty units run at once: only some of them are run again, and at most twice.
func TestAllConnectionsAreOutdated(t *testing.T) {
	const atOnce, atMost = 60, 80
	wherePrepared(t, func(t *testing.T, _ string, e *ender) {
		e.warm(12)
		_, err := e.db.Exec("ALTER TABLE things ADD COLUMN extra text")
		require.NoError(t, err)
		var most, total atomic.Int64
		var units sync.WaitGroup
		for range atOnce {
			units.Go(func() {
				runs := int64(0)
				if err := e.UoW.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
					runs++
					total.Add(1)
					return read(ctx, u)
				}); err != nil {
					t.Error(err)
				}
				for before := most.Load(); runs > before && !most.CompareAndSwap(before, runs); before = most.Load() {
				}
			})
		}
		units.Wait()
		// One more than of a unit alone: it may begin again before the first failure of all is known, and meet another old connection.
		require.LessOrEqual(t, most.Load(), int64(3))
		require.LessOrEqual(t, total.Load(), int64(atMost))
	})
}

// Statements that the session has forgotten because of DEALLOCATE ALL are prepared anew. A function that sends
// DEALLOCATE ALL itself is not run for ever.
func TestForgottenStatementsAreRunAgain(t *testing.T) {
	wherePrepared(t, func(t *testing.T, _ string, e *ender) {
		forget := func(ctx context.Context, u *uow.Unit) error {
			_, err := u.DB().ExecContext(ctx, "DEALLOCATE ALL")
			return err
		}
		e.warm(1)
		require.NoError(t, e.UoW.Do(t.Context(), forget))
		runs := 0
		require.NoError(t, e.UoW.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
			runs++
			return read(ctx, u)
		}))
		require.LessOrEqual(t, runs, 2)
		runs = 0
		_ = e.UoW.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
			runs++
			if err := read(ctx, u); err != nil {
				return err
			}
			if err := forget(ctx, u); err != nil {
				return err
			}
			return read(ctx, u)
		})
		require.LessOrEqual(t, runs, 9)
	})
}
