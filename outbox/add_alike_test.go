package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/outbox"
)

var errUndone = errors.New("undone")

type addFunc func(topic string, payload any, opts ...event.AddOption) (string, error)

// way is one of the ways to add within a transaction of a caller's own. fn's error rolls it back.
type way func(fn func(add addFunc) error) error

// waysToAdd are all of them, with pools in each mode of pgx that sends parameters.
func (f *fixture) waysToAdd() map[string]way {
	ctx, ways := f.T.Context(), map[string]way{}
	ways["bun"] = func(fn func(add addFunc) error) error {
		return f.DB.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
			return fn(func(topic string, payload any, opts ...event.AddOption) (string, error) {
				return f.Add(ctx, tx, topic, payload, opts...)
			})
		})
	}
	ways["database/sql"] = func(fn func(add addFunc) error) error {
		tx, err := f.DB.DB.DB.BeginTx(ctx, nil)
		require.NoError(f.T, err)
		defer func() { _ = tx.Rollback() }()
		if err := fn(func(topic string, payload any, opts ...event.AddOption) (string, error) {
			return f.AddSQL(ctx, tx, topic, payload, opts...)
		}); err != nil {
			return err
		}
		return tx.Commit()
	}
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		pool := f.pgxPool(mode)
		ways["pgx "+mode.String()] = func(fn func(add addFunc) error) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				return fn(func(topic string, payload any, opts ...event.AddOption) (string, error) {
					return f.AddPgx(ctx, tx, topic, payload, opts...)
				})
			})
		}
	}
	return ways
}

// pgxPool opens a pool of pgx on the fixture's database.
func (f *fixture) pgxPool(mode pgx.QueryExecMode) *pgxpool.Pool {
	cfg, err := pgxpool.ParseConfig(f.DB.DSN)
	require.NoError(f.T, err)
	cfg.ConnConfig.DefaultQueryExecMode = mode
	pool, err := pgxpool.NewWithConfig(f.T.Context(), cfg)
	require.NoError(f.T, err)
	f.T.Cleanup(pool.Close)
	return pool
}

func TestEachWayToAddKeepsTheTransaction(t *testing.T) {
	f := newFixture(t, nil)
	key := event.WithAggregate("order", "k", 1)
	i := 0
	for name, within := range f.waysToAdd() {
		t.Run(name, func(t *testing.T) {
			i++
			id := func() event.AddOption { return event.WithDedupKey(fmt.Sprint("import-", i)) }
			require.ErrorIs(t, within(func(add addFunc) error {
				_, err := add("order", []byte("x"), key, event.WithType(name+" undone"), id())
				require.NoError(t, err)
				return errUndone
			}), errUndone)
			require.NotContains(t, f.Statuses(), name+" undone")

			var first, second string
			require.NoError(t, within(func(add addFunc) (err error) {
				_, err = add("a/b", nil)
				require.ErrorIs(t, err, event.ErrInvalid, "reported before anything is sent")
				_, err = add("order", map[string]any{"n": 1}, key, event.WithHeader("k", "ä'\""), event.WithMaxAttempts(9),
					event.WithExpiry(time.Now().Add(time.Hour)), event.WithType(name+" plain"))
				require.NoError(t, err)
				first, err = add("order", []byte{0, 255}, key, event.WithType(name), id())
				return err
			}))
			require.NoError(t, within(func(add addFunc) (err error) {
				second, err = add("order", []byte("y"), key, event.WithType(name+" repeated"), id())
				return err
			}))
			require.Equal(t, first, second, "the rolled back one does not count, the committed one does")
			require.Contains(t, f.Statuses(), name)
			require.Contains(t, f.Statuses(), name+" plain")
			require.NotContains(t, f.Statuses(), name+" repeated")
			require.Equal(t, 1, f.Count("outbox WHERE id = ? AND payload = '\\x00ff'", first))
		})
	}
	lanes := f.Count("(SELECT DISTINCT lane FROM outbox) l")
	require.Equal(t, 1, lanes, "one key, one lane")
}

// Writers of one key wait for each other, whichever way each of them adds: all of them hold the same lock until COMMIT.
func TestEachWayToAddTakesTheLockOfTheKey(t *testing.T) {
	f := newFixture(t, nil)
	for name, within := range f.waysToAdd() {
		require.NoError(t, within(func(add addFunc) error {
			_, err := add("order", []byte("x"), event.WithAggregate("order", "hot", 1))
			require.NoError(t, err)
			require.Equal(t, []int64{int64(outboxdb.LaneHash("default|order|hot") >> 32 % outboxdb.LockBuckets)}, f.lockedBuckets(), name)
			return nil
		}))
		require.Empty(t, f.lockedBuckets(), name)
	}
}

// lockedBuckets returns the buckets of the ordering keys that transactions hold now.
func (f *fixture) lockedBuckets() (buckets []int64) {
	f.T.Helper()
	require.NoError(f.T, f.DB.NewRaw(`SELECT l.objid::bigint FROM pg_locks l, oncebox_settings
		WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.classid = (lock_space::bigint & 4294967295)::oid AND l.granted`).
		Scan(f.T.Context(), &buckets))
	return buckets
}

func TestAddPgxBehindAPooler(t *testing.T) {
	f := newFixture(t, &outbox.Config{Pooler: true})
	pool := f.pgxPool(pgx.QueryExecModeCacheStatement)
	for range 3 {
		require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			_, err := f.AddPgx(t.Context(), tx, "order", []byte("x"))
			return err
		}))
	}
	require.Equal(t, 3, f.Count("outbox"))
}
