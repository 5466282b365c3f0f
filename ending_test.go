package oncebox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/internal/nightly"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/uow"
)

// endings are texts that end a transaction.
var endings = []string{
	"COMMIT", "ROLLBACK", "END", "ABORT", "commit work", "Rollback Transaction",
	"COMMIT; BEGIN", "ROLLBACK; BEGIN", "END; START TRANSACTION ISOLATION LEVEL SERIALIZABLE", "COMMIT; BEGIN; COMMIT; BEGIN",
	"COMMIT AND CHAIN", "ROLLBACK AND CHAIN", "abort work and chain", "ROLLBACK AND NO CHAIN",
	"/* to /* a */ ; */ rollback /* to a */ -- to b\n and chain", "-- no comment\nCOMMIT",
	"BEGIN; INSERT INTO notes VALUES ('script'); COMMIT", "INSERT INTO notes VALUES ('script'); COMMIT; BEGIN; INSERT INTO notes VALUES ('more')",
	"SAVEPOINT a; ROLLBACK AND CHAIN", "SAVEPOINT a; ROLLBACK TO a; ROLLBACK; BEGIN; SAVEPOINT a", "SAVEPOINT a; COMMIT; BEGIN; SAVEPOINT a",
	"SELECT 'ROLLBACK TO a; '; ROLLBACK; BEGIN", "COMMIT; SET TRANSACTION READ ONLY; BEGIN",
	"-- a\rROLLBACK AND CHAIN",
}

// harmless are texts that look like those.
var harmless = []string{
	"SAVEPOINT a; ROLLBACK TO SAVEPOINT a", "SAVEPOINT a; rollback /* and chain */ work -- ;\n to a; RELEASE a", "BEGIN",
	"SAVEPOINT a; -- ;\rROLLBACK -- AND CHAIN\rTO a -- b",
	"SELECT 'ROLLBACK AND CHAIN', $$; COMMIT; $$", "PREPARE commit_ AS SELECT 1; EXECUTE commit_; DEALLOCATE commit_",
	"SELECT CASE WHEN true THEN 1 END; SAVEPOINT a; ROLLBACK TO a", "LISTEN oncebox_ending; NOTIFY oncebox_ending", "SET CONSTRAINTS ALL IMMEDIATE",
	"DO $$ BEGIN BEGIN RAISE division_by_zero; EXCEPTION WHEN others THEN NULL; END; END $$", "SET LOCAL ROLE NONE; SET SESSION AUTHORIZATION DEFAULT",
}

type send func(ctx context.Context, app *oncebox.App, u *uow.Unit, text string) error

// handles are the ways in which a statement of a unit gets to the server.
var handles = map[string]send{
	"DB": func(ctx context.Context, _ *oncebox.App, u *uow.Unit, text string) error {
		_, err := u.DB().ExecContext(ctx, text)
		return err
	},
	"DB by the manager": func(ctx context.Context, app *oncebox.App, _ *uow.Unit, text string) error {
		_, err := app.UoW.DB(ctx).NewRaw(text).Exec(ctx)
		return err
	},
	"DB nested": func(ctx context.Context, _ *oncebox.App, u *uow.Unit, text string) error {
		inner, err := u.DB().BeginTx(ctx, nil)
		if err == nil {
			_, err = inner.ExecContext(ctx, text)
		}
		return err
	},
	"Do nested": func(ctx context.Context, app *oncebox.App, _ *uow.Unit, text string) (err error) {
		_ = app.UoW.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
			_, err = u.DB().ExecContext(ctx, text)
			return nil
		})
		return err
	},
	"SQL": func(ctx context.Context, _ *oncebox.App, u *uow.Unit, text string) error {
		_, err := u.SQL().ExecContext(ctx, text)
		return err
	},
	"SQL rows": func(ctx context.Context, _ *oncebox.App, u *uow.Unit, text string) error {
		rows, err := u.SQL().QueryContext(ctx, text, pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			return err
		}
		return errors.Join(rows.Close(), rows.Err())
	},
	"SQL prepared": func(ctx context.Context, _ *oncebox.App, u *uow.Unit, text string) error {
		s, err := u.SQL().PrepareContext(ctx, text)
		if err != nil {
			return err
		}
		_, err = s.ExecContext(ctx)
		return errors.Join(err, s.Close())
	},
	"Pgx": func(ctx context.Context, _ *oncebox.App, u *uow.Unit, text string) error {
		_, err := u.Pgx().Exec(ctx, text)
		return err
	},
	"Pgx simple": func(ctx context.Context, _ *oncebox.App, u *uow.Unit, text string) error {
		rows, err := u.Pgx().Query(ctx, text, pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			return err
		}
		rows.Close()
		return rows.Err()
	},
	"Pgx batch": func(ctx context.Context, _ *oncebox.App, u *uow.Unit, text string) error {
		b := &pgx.Batch{}
		b.Queue("SELECT 1")
		b.Queue(text)
		return u.Pgx().SendBatch(ctx, b).Close()
	},
	"Pgx prepared": func(ctx context.Context, _ *oncebox.App, u *uow.Unit, text string) error {
		if _, err := u.Pgx().Prepare(ctx, text, text); err != nil {
			return err
		}
		_, err := u.Pgx().Exec(ctx, text)
		return err
	},
	"Conn": func(ctx context.Context, _ *oncebox.App, u *uow.Unit, text string) error {
		_, err := u.Pgx().Conn().Exec(ctx, text)
		return err
	},
	"PgConn": func(ctx context.Context, _ *oncebox.App, u *uow.Unit, text string) error {
		_, err := u.Pgx().Conn().PgConn().Exec(ctx, text).ReadAll()
		return err
	},
}

// pools lists the pools that a unit may run on.
var pools = map[string]func(t *testing.T, db *pgtest.DB) *bun.DB{
	"OpenDB": func(t *testing.T, db *pgtest.DB) *bun.DB { return opened(t, config.Config{DatabaseURL: db.DSN}) },
	"OpenDB, pooler": func(t *testing.T, db *pgtest.DB) *bun.DB {
		return opened(t, config.Config{DatabaseURL: db.Pooled(t).DSN, Pooler: true})
	},
	"OpenDB, guarded": func(t *testing.T, db *pgtest.DB) *bun.DB {
		return opened(t, config.Config{DatabaseURL: db.DSN, RefusePool: true})
	},
	"UseDB": func(t *testing.T, db *pgtest.DB) *bun.DB {
		pool, err := sql.Open("pgx", strings.Replace(db.DSN, "mode=exec", "mode=cache_statement", 1))
		require.NoError(t, err)
		t.Cleanup(func() { _ = pool.Close() })
		used, err := config.UseDB(t.Context(), pool, config.Config{})
		require.NoError(t, err)
		return used
	},
	"UsePool": func(t *testing.T, db *pgtest.DB) *bun.DB {
		cfg, err := pgxpool.ParseConfig(strings.Replace(db.DSN, "mode=exec", "mode=cache_statement", 1))
		require.NoError(t, err)
		cfg.MaxConns = 20
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		used, err := config.UsePool(t.Context(), pool, config.Config{})
		require.NoError(t, err)
		t.Cleanup(func() { _ = used.Close() })
		return used
	},
}

func opened(t *testing.T, cfg config.Config) *bun.DB {
	t.Helper()
	pool, err := config.OpenDB(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = pool.Close() })
	return pool
}

// possible reports whether a handle can send a text. Behind a pooler nothing stays prepared, and a prepared statement has one command.
func possible(pool, handle, text string) bool {
	prepares := strings.HasSuffix(handle, "prepared")
	return (!prepares || pool != "OpenDB, pooler") && (!prepares && handle != "Pgx batch" || !strings.Contains(text, ";"))
}

// Whatever ends a transaction: the unit fails, and nothing of it is stored that is oncebox's own.
func TestNobodyEndsTheTransactionOfAUnit(t *testing.T) {
	var cells atomic.Int64
	t.Cleanup(func() { t.Log(cells.Load(), "cells") })
	for name, open := range pools {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Migrated(t)
			e := newEnder(t, db, open, name == "OpenDB, pooler")
			turn := 0
			for kind, run := range kinds {
				for n, text := range endings {
					for m, handle := range slices.Sorted(maps.Keys(handles)) {
						// Each handle with each text, and each kind with each text and each handle.
						if !possible(name, handle, text) {
							continue
						}
						if nightly.On || kind == "unit" || (n+m+turn)%len(handles) == 0 {
							cells.Add(1)
							e.requireFailure(kind, handle, text, run)
						}
					}
					turn++
				}
			}
		})
	}
}

func (e *ender) requireFailure(kind, handle, text string, run func(*ender) error) {
	e.Helper()
	cell := fmt.Sprintf("%s, %s: %s", kind, handle, text)
	e.function = func(ctx context.Context) error {
		u := uow.MustFromContext(ctx)
		require.NoError(e, u.Add("orders", []byte("before")), cell)
		_ = handles[handle](ctx, e.App, u, text) // whoever looks at it notices
		_ = u.Add("orders", []byte("after"))
		return nil
	}
	err := run(e)
	require.Error(e, err, cell)
	if !strings.Contains(text, "READ ONLY") { // where that fails oncebox's own statement, a pool of UseDB knows no more
		require.ErrorIs(e, err, uow.ErrTransactionEnded, cell)
	}
	var stored []string
	require.NoError(e, e.db.NewRaw(`
		SELECT 'event' FROM outbox UNION ALL SELECT 'step' FROM inbox_step UNION ALL SELECT 'step of a key' FROM idempotency_step
		UNION ALL SELECT 'entry' FROM inbox i WHERE NOT EXISTS (SELECT FROM inbox_parked p WHERE p.message_key = i.message_key)
		UNION ALL SELECT 'answer' FROM idempotency_keys WHERE state = 'completed'`).Scan(e.Context(), &stored), cell)
	require.Empty(e, stored, cell)
}

// A statement that only looks like the end of a transaction does not count as one.
func TestWhatOnlyLooksLikeAnEnd(t *testing.T) {
	for name, open := range pools {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Migrated(t)
			e := newEnder(t, db, open, name == "OpenDB, pooler")
			for _, text := range harmless {
				for handle, send := range handles {
					if !possible(name, handle, text) {
						continue
					}
					cell := handle + ": " + text
					require.NoError(t, e.UoW.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
						require.NoError(t, send(ctx, e.App, u, text), cell)
						return u.Add("orders", []byte("x"))
					}), cell)
				}
			}
		})
	}
}

// A transaction that is prepared is no more that of the session, and its fate is open.
func TestATransactionIsNotPrepared(t *testing.T) {
	server := pgtest.Start(t, map[string]string{"max_prepared_transactions": "5"})
	for name, open := range pools {
		t.Run(name, func(t *testing.T) {
			db := server.Migrated(t)
			e := newEnder(t, db, open, name == "OpenDB, pooler")
			for _, text := range []string{"PREPARE TRANSACTION 'oncebox'", "PREPARE TRANSACTION 'oncebox'; BEGIN"} {
				for _, handle := range []string{"DB", "SQL", "PgConn", "Do nested"} {
					e.requireFailure("unit", handle, text, kinds["unit"])
					_, err := db.Exec("ROLLBACK PREPARED 'oncebox'")
					require.NoError(t, err, "%s: %s", handle, text)
				}
			}
		})
	}
}
