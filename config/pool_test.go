package config_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"path"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/uow"
)

func eachPool(t *testing.T, dsn string, test func(t *testing.T, use func(config.Config) (*bun.DB, error), ping func() error)) {
	t.Helper()
	t.Run("database/sql", func(t *testing.T) {
		pool, err := sql.Open("pgx", dsn)
		require.NoError(t, err)
		t.Cleanup(func() { _ = pool.Close() })
		test(t, func(cfg config.Config) (*bun.DB, error) { return config.UseDB(t.Context(), pool, cfg) }, pool.Ping)
	})
	t.Run("pgx", func(t *testing.T) {
		pool, err := pgxpool.New(t.Context(), dsn)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		test(t, func(cfg config.Config) (*bun.DB, error) {
			db, err := config.UsePool(t.Context(), pool, cfg)
			if err == nil {
				t.Cleanup(func() { _ = db.Close() }) // before the pool
			}
			return db, err
		},
			func() error { return pool.Ping(t.Context()) })
	})
}

func TestPoolsOfTheCaller(t *testing.T) {
	base := pgtest.Migrated(t, pgtest.Outbox)
	eachPool(t, base.DSN, func(t *testing.T, use func(config.Config) (*bun.DB, error), ping func() error) {
		db, err := use(config.Config{})
		require.NoError(t, err)
		units := uow.New(db, &uow.Config{Source: "test"}, outbox.NewStore(db, nil))
		require.NoError(t, units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
			if _, err := u.Pgx().Exec(ctx, "SELECT $1::text", "pgx"); err != nil {
				return err
			}
			return u.Add(path.Base(t.Name()), map[string]int{"n": 1})
		}))
		var n int
		require.NoError(t, base.NewRaw("SELECT count(*) FROM outbox WHERE topic = ?", path.Base(t.Name())).Scan(t.Context(), &n))
		require.Equal(t, 1, n)
		require.NoError(t, ping(), "the pool is still the caller's")
	})
}

func TestPoolsOfTheCallerBehindAPooler(t *testing.T) {
	pooled := pgtest.Open(t).Pooled(t)
	eachPool(t, pooled.DSN, func(t *testing.T, use func(config.Config) (*bun.DB, error), _ func() error) {
		_, err := use(config.Config{})
		require.ErrorIs(t, err, pgerr.ErrPooler)
		require.ErrorContains(t, err, "ONCEBOX_POOLER")
		_, err = use(config.Config{Pooler: true})
		require.NoError(t, err)
	})
}

func TestPoolsThatCannotBeUsed(t *testing.T) {
	foreign := sql.OpenDB(other{})
	t.Cleanup(func() { _ = foreign.Close() })
	for what, use := range map[string]func() (*bun.DB, error){
		"UseDB: the pool is nil":       func() (*bun.DB, error) { return config.UseDB(t.Context(), nil, config.Config{}) },
		"UsePool: the pool is nil":     func() (*bun.DB, error) { return config.UsePool(t.Context(), nil, config.Config{}) },
		"other, which is not pgx: ope": func() (*bun.DB, error) { return config.UseDB(t.Context(), foreign, config.Config{}) },
		"Config.RefusePool (ONCEBOX_REFUSE_POOL) is for connections of OpenDB": func() (*bun.DB, error) {
			return config.UseDB(t.Context(), foreign, config.Config{RefusePool: true})
		},
	} {
		_, err := use()
		require.ErrorContains(t, err, what)
	}
}

// other is a driver that is not pgx.
type other struct{}

func (o other) Connect(context.Context) (driver.Conn, error) { return o, nil }
func (o other) Driver() driver.Driver                        { return o }
func (o other) Open(string) (driver.Conn, error)             { return o, nil }
func (other) Prepare(string) (driver.Stmt, error)            { return nil, errors.ErrUnsupported }
func (other) Begin() (driver.Tx, error)                      { return nil, errors.ErrUnsupported }
func (other) Close() error                                   { return nil }

func TestRefusePool(t *testing.T) {
	db := pgtest.Migrated(t)
	for name, cfg := range map[string]config.Config{
		"one round trip": {DatabaseURL: db.DSN}, "behind a pooler": {DatabaseURL: db.DSN, Pooler: true},
	} {
		t.Run(name, func(t *testing.T) {
			for refuse, want := range map[bool]error{true: uow.ErrPool, false: nil} {
				cfg.RefusePool = refuse
				pool, err := config.OpenDB(t.Context(), cfg)
				require.NoError(t, err)
				t.Cleanup(func() { _ = pool.Close() })
				require.NoError(t, uow.New(pool, nil).Do(t.Context(), func(ctx context.Context, _ *uow.Unit) error {
					_, err := pool.NewRaw("SELECT 1").Exec(ctx)
					require.ErrorIs(t, err, want)
					return nil
				}))
			}
		})
	}
}
