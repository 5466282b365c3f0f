package uow_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/uow"
)

// eachDriver runs a test with every kind of pool that a unit may run on.
func eachDriver(t *testing.T, test func(t *testing.T, s *service, units *uow.Manager)) {
	t.Helper()
	for name, open := range map[string]func(t *testing.T, s *service) *bun.DB{
		"one round trip": func(t *testing.T, s *service) *bun.DB { return pipelined(t, s.DSN) },
		"behind a pooler": func(t *testing.T, s *service) *bun.DB {
			cfg, err := pgx.ParseConfig(s.DSN)
			require.NoError(t, err)
			return closed(t, sql.OpenDB(pgsql.NewConnector(*cfg, pgsql.BehindPooler())))
		},
		"the caller's database/sql": func(t *testing.T, s *service) *bun.DB {
			pool, err := sql.Open("pgx", plainDSN(s))
			require.NoError(t, err)
			return closed(t, pool)
		},
		"the caller's pgx": func(t *testing.T, s *service) *bun.DB {
			pool, err := pgxpool.New(t.Context(), plainDSN(s))
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			return closed(t, stdlib.OpenDBFromPool(pool))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, nil)
			_, err := s.Exec("CREATE TABLE documents (body jsonb)")
			require.NoError(t, err)
			pool := open(t, s)
			test(t, s, s.manager(nil, pool, &probeSink{tableSink: s.sink}))
			requireGivenBack(t, pool, name)
		})
	}
}

// plainDSN leaves pgx to its own defaults.
func plainDSN(s *service) string {
	return strings.Replace(s.DSN, "mode=exec", "mode=cache_statement", 1)
}

func closed(t *testing.T, pool *sql.DB) *bun.DB {
	t.Helper()
	t.Cleanup(func() { _ = pool.Close() })
	return bun.NewDB(pool, pgdialect.New())
}

// All three handles are one transaction, whichever is used first.
func TestSQLAndPgxAreTheTransaction(t *testing.T) {
	eachDriver(t, func(t *testing.T, s *service, units *uow.Manager) {
		use := func(ctx context.Context, u *uow.Unit) error {
			if _, err := u.Pgx().Exec(ctx, "INSERT INTO notes (text) VALUES ($1)", "pgx"); err != nil {
				return err
			}
			if _, err := u.SQL().ExecContext(ctx, "INSERT INTO notes (text) VALUES ($1)", "sql"); err != nil {
				return err
			}
			if err := note(ctx, u, "bun"); err != nil {
				return err
			}
			// sqlc makes []byte of a column of type jsonb.
			if _, err := u.Pgx().Exec(ctx, "INSERT INTO documents VALUES ($1)", []byte(`{"a": 1}`)); err != nil {
				return err
			}
			if _, err := u.Pgx().CopyFrom(ctx, pgx.Identifier{"notes"}, []string{"text"}, pgx.CopyFromRows([][]any{{"copy"}})); err != nil {
				return err
			}
			b := &pgx.Batch{}
			b.Queue("INSERT INTO notes (text) VALUES ($1)", "batch")
			if err := u.Pgx().SendBatch(ctx, b).Close(); err != nil {
				return err
			}
			rows, _ := u.Pgx().Query(ctx, "SELECT text FROM notes WHERE text <> $1 ORDER BY pos", "")
			seen, err := pgx.CollectRows(rows, pgx.RowTo[string])
			require.NoError(t, err)
			require.Equal(t, []string{"pgx", "sql", "bun", "copy", "batch"}, seen)
			var n int
			require.NoError(t, u.Pgx().QueryRow(ctx, "SELECT count(*) FROM documents WHERE body = $1", []byte(`{"a":1}`)).Scan(&n))
			require.Equal(t, 1, n)
			return u.Add("topic", changed{"hello"})
		}
		require.ErrorIs(t, units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
			return errors.Join(use(ctx, u), errRefused)
		}), errRefused)
		s.requireNothing(t)
		require.NoError(t, units.Do(t.Context(), use))
		require.Equal(t, []string{"pgx", "sql", "bun", "copy", "batch"}, s.notes(t))
		require.Equal(t, []string{"topic hello"}, s.sunk(t))
	})
}

// A savepoint takes back what was done within it, through whatever handle, and the unit goes on.
func TestPgxInASavepoint(t *testing.T) {
	eachDriver(t, func(t *testing.T, s *service, units *uow.Manager) {
		require.NoError(t, units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
			var inner *uow.Unit
			require.Error(t, units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
				inner = u
				_, err := u.Pgx().Exec(ctx, "INSERT INTO notes (text) VALUES ($1)", "undone")
				require.NoError(t, err)
				_, err = u.Pgx().Exec(ctx, "SELECT 1 / $1::int", 0)
				require.Equal(t, "22012", pgerr.Code(err), "division_by_zero")
				_, err = u.Pgx().Exec(ctx, "SELECT $1::int", 1)
				require.Equal(t, pgerr.InFailedTransaction, pgerr.Code(err))
				return err
			}))
			_, err := inner.Pgx().Exec(ctx, "SELECT 1")
			require.ErrorContains(t, err, "uow: Pgx: Exec: the unit has ended")
			_, err = u.Pgx().Exec(ctx, "INSERT INTO notes (text) VALUES ($1)", "kept")
			return err
		}))
		require.Equal(t, []string{"kept"}, s.notes(t))
	})
}

func TestPgxLeavesTheEndToTheUnit(t *testing.T) {
	s := newService(t, nil)
	require.NoError(t, s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		tx := u.Pgx()
		require.ErrorContains(t, tx.Commit(ctx), "leave both to it")
		require.ErrorContains(t, tx.Rollback(ctx), "leave both to it")
		_, err := tx.Begin(ctx)
		require.ErrorContains(t, err, "use Manager.Do")
		require.PanicsWithValue(t, "uow: Pgx: LargeObjects: not to be had of a unit: call the functions of the server (lo_create and its like) by Query",
			func() { tx.LargeObjects() })
		require.Equal(t, "T", string(tx.Conn().PgConn().TxStatus()))
		return note(ctx, u, "kept")
	}))
	require.Equal(t, []string{"kept"}, s.notes(t))
}

// opaque is a driver that wraps pgx, like drivers for tracing, and does not show the connection beneath.
type opaque struct{ driver.Connector }

func (o opaque) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := o.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return struct {
		driver.Conn
		driver.ConnBeginTx
		driver.ExecerContext
		driver.QueryerContext
	}{c, c.(driver.ConnBeginTx), c.(driver.ExecerContext), c.(driver.QueryerContext)}, nil
}

func TestPgxOfAnotherDriver(t *testing.T) {
	s := newService(t, nil)
	cfg, err := pgx.ParseConfig(s.DSN)
	require.NoError(t, err)
	pool := closed(t, sql.OpenDB(opaque{stdlib.GetConnector(*cfg)}))
	require.NoError(t, s.manager(nil, pool).Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		tx := u.Pgx()
		_, err := tx.Exec(ctx, "INSERT INTO notes (text) VALUES ('lost')")
		require.EqualError(t, err, "uow: Pgx: Exec: the driver of the pool is not pgx")
		var n int
		require.ErrorContains(t, tx.QueryRow(ctx, "SELECT 1").Scan(&n), "the driver of the pool is not pgx")
		require.Nil(t, tx.Conn())
		return note(ctx, u, "kept")
	}))
	require.Equal(t, []string{"kept"}, s.notes(t))
}

func TestHandlesOfAUnitThatHasEnded(t *testing.T) {
	eachDriver(t, func(t *testing.T, s *service, units *uow.Manager) {
		var tx pgx.Tx
		var std *sql.Tx
		require.NoError(t, units.Do(t.Context(), func(_ context.Context, u *uow.Unit) error {
			tx, std = u.Pgx(), u.SQL()
			return nil
		}))
		ctx, ended := t.Context(), "the unit has ended"
		_, err := std.ExecContext(ctx, "INSERT INTO notes (text) VALUES ('late')")
		require.ErrorIs(t, err, sql.ErrTxDone)
		_, err = tx.Exec(ctx, "INSERT INTO notes (text) VALUES ('late')")
		require.ErrorContains(t, err, ended)
		rows, err := tx.Query(ctx, "SELECT 1")
		require.ErrorContains(t, err, ended)
		_, err = pgx.CollectRows(rows, pgx.RowTo[int])
		require.ErrorContains(t, err, ended)
		require.ErrorContains(t, tx.QueryRow(ctx, "SELECT 1").Scan(), ended)
		require.ErrorContains(t, tx.SendBatch(ctx, &pgx.Batch{}).Close(), ended)
		_, err = tx.CopyFrom(ctx, pgx.Identifier{"notes"}, []string{"text"}, pgx.CopyFromRows(nil))
		require.ErrorContains(t, err, ended)
		_, err = tx.Prepare(ctx, "", "SELECT 1")
		require.ErrorContains(t, err, ended)
		require.Nil(t, tx.Conn())
		require.Empty(t, s.notes(t))
	})
}

// A function that commits by itself has committed its data without its events. The unit must not report success.
func TestFunctionThatEndsTheTransactionItself(t *testing.T) {
	eachDriver(t, func(t *testing.T, _ *service, units *uow.Manager) {
		for what, end := range map[string]func(*sql.Tx) error{"commit": (*sql.Tx).Commit, "rollback": (*sql.Tx).Rollback} {
			for _, identified := range []bool{false, true} {
				err := units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
					var xid string
					require.NoError(t, u.SQL().QueryRowContext(ctx, "SELECT pg_current_xact_id()::text").Scan(&xid))
					if identified {
						uow.Inside(u).Identified(xid)
					}
					require.NoError(t, end(u.SQL()))
					_, err := u.Pgx().Exec(ctx, "INSERT INTO notes (text) VALUES ('outside')")
					require.ErrorContains(t, err, "leave COMMIT and ROLLBACK to the unit")
					return nil
				}, uow.WithoutRetry())
				require.ErrorContains(t, err, "leave COMMIT and ROLLBACK to the unit", "%s, identified %t", what, identified)
			}
		}
	})
}
