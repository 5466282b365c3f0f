package uow_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/uow"
)

// eachGuarded runs a test with every kind of pool that can refuse statements.
func eachGuarded(t *testing.T, test func(t *testing.T, s *service, pool *bun.DB, open func(*service) *bun.DB)) {
	t.Helper()
	for name, connector := range map[string]func(pgx.ConnConfig) *pgsql.Connector{
		"one round trip":  func(cfg pgx.ConnConfig) *pgsql.Connector { return pgsql.NewConnector(cfg) },
		"behind a pooler": func(cfg pgx.ConnConfig) *pgsql.Connector { return pgsql.NewConnector(cfg, pgsql.BehindPooler()) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, nil)
			open := func(s *service) *bun.DB {
				cfg, err := pgx.ParseConfig(s.DSN)
				require.NoError(t, err)
				return closed(t, pgsql.OpenGuarded(connector(*cfg)))
			}
			pool := open(s)
			test(t, s, pool, open)
			requireGivenBack(t, pool, name)
		})
	}
}

const insertNote = "INSERT INTO notes (text) VALUES (gen_random_uuid()::text)"

// beside are the ways to the pool.
func beside(ctx context.Context, pool *bun.DB, prepared *sql.Stmt) map[string]error {
	_, byExec := pool.DB.ExecContext(ctx, insertNote)
	_, byBun := pool.NewRaw(insertNote).Exec(ctx)
	byRow := pool.DB.QueryRowContext(ctx, insertNote+" RETURNING text").Scan(new(string))
	_, byPrepare := pool.DB.PrepareContext(ctx, insertNote)
	_, byStmt := prepared.ExecContext(ctx)
	byQuery := prepared.QueryRowContext(ctx).Scan(new(string))
	tx, byBegin := pool.DB.BeginTx(ctx, nil)
	if byBegin == nil {
		_ = tx.Rollback()
	}
	conn, err := pool.DB.Conn(ctx)
	if err == nil {
		_, err = conn.ExecContext(ctx, insertNote)
		_ = conn.Close()
	}
	return map[string]error{
		"Exec": byExec, "bun": byBun, "QueryRow": byRow, "Prepare": byPrepare, "Stmt.Exec": byStmt, "Stmt.QueryRow": byQuery,
		"BeginTx": byBegin, "Conn": err,
	}
}

func TestThePoolIsRefusedWithinAUnit(t *testing.T) {
	eachGuarded(t, func(t *testing.T, s *service, pool *bun.DB, _ func(*service) *bun.DB) {
		units := s.manager(nil, pool, s.sink)
		var prepared *sql.Stmt
		refused := func(ctx context.Context) {
			t.Helper()
			for call, err := range beside(ctx, pool, prepared) {
				require.ErrorIs(t, err, uow.ErrPool, call)
				require.ErrorContains(t, err, "would be committed by itself, and stay where the unit is rolled back", call)
				require.ErrorContains(t, err, "u.DB(), u.SQL(), u.Pgx()", call)
				require.ErrorContains(t, err, "uow.Outside(ctx)", call)
			}
		}
		var late context.Context
		require.NoError(t, units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
			late = ctx //nolint:fatcontext // used after the unit
			var err error
			prepared, err = pool.DB.PrepareContext(uow.Outside(ctx), insertNote+" RETURNING text") // on another connection than the unit's
			require.NoError(t, err)
			refused(ctx) // before BEGIN has been sent
			require.NoError(t, note(ctx, u, "unit"))
			refused(ctx)
			var inner context.Context
			require.Error(t, units.Do(ctx, func(ctx context.Context, _ *uow.Unit) error {
				inner = ctx //nolint:fatcontext // used after the savepoint
				refused(ctx)
				return errors.New("take it back")
			}))
			refused(inner) // the savepoint has ended, and the unit has not
			return nil
		}))
		defer prepared.Close()
		require.Equal(t, []string{"unit"}, s.notes(t))
		for call, err := range beside(late, pool, prepared) {
			require.NoError(t, err, "%s after the unit's end", call)
		}
	})
}

// Statements that have to pass: the unit's own with whatever context, the intended ones, and statements of other databases.
func TestWhatIsNoMistakeIsNotRefused(t *testing.T) {
	eachGuarded(t, func(t *testing.T, s *service, pool *bun.DB, open func(*service) *bun.DB) {
		units, other := s.manager(nil, pool, s.sink), newServiceApart(t)
		there := open(other)
		err := units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
			_, err := pool.DB.ExecContext(uow.Outside(ctx), "INSERT INTO notes (text) VALUES ('stays')")
			require.NoError(t, err)
			_, within := uow.FromContext(uow.Outside(ctx))
			require.False(t, within)
			require.NoError(t, units.Do(uow.Outside(ctx), func(_ context.Context, alone *uow.Unit) error {
				return note(ctx, alone, "stays too") // with the context of the unit around it
			}))
			tx, err := pool.DB.BeginTx(uow.Outside(ctx), nil)
			require.NoError(t, err)
			_, err = tx.ExecContext(ctx, "INSERT INTO notes (text) VALUES ('stays as well')")
			require.NoError(t, errors.Join(err, tx.Commit()))

			_, err = there.NewRaw("INSERT INTO notes (text) VALUES ('other')").Exec(ctx)
			require.NoError(t, err, "the pool of another database")
			require.NoError(t, other.manager(nil, there, other.sink).Do(ctx, func(ctx context.Context, inner *uow.Unit) error {
				_, err := pool.DB.ExecContext(ctx, insertNote)
				require.ErrorIs(t, err, uow.ErrPool, "the unit around that of the other database is still open")
				return errors.Join(note(ctx, inner, "there"), note(ctx, u, "unit"))
			}))
			return errors.New("take it back")
		})
		require.ErrorContains(t, err, "take it back")
		require.ElementsMatch(t, []string{"stays", "stays too", "stays as well"}, s.notes(t))
	})
}

// A hook runs after COMMIT, so its own statements take nothing from the unit.
func TestHooksMayUseThePool(t *testing.T) {
	eachGuarded(t, func(t *testing.T, s *service, pool *bun.DB, _ func(*service) *bun.DB) {
		var err error
		require.NoError(t, s.manager(nil, pool, s.sink).Do(t.Context(), func(unit context.Context, u *uow.Unit) error {
			u.AfterCommit(func(ctx context.Context) {
				_, first := pool.NewRaw(insertNote).Exec(ctx)
				_, second := pool.NewRaw(insertNote).Exec(unit)
				err = errors.Join(first, second)
			})
			return nil
		}))
		require.NoError(t, err)
	})
}
