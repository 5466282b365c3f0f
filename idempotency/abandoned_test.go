package idempotency_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// oneConnection returns a pool as config.OpenDB opens it, with one connection, which the server knows by the name of the schema.
// dial may be nil.
func oneConnection(t *testing.T, db *pgtest.DB, dial pgconn.DialFunc) *bun.DB {
	t.Helper()
	cfg, err := pgx.ParseConfig(db.DSN)
	require.NoError(t, err)
	cfg.RuntimeParams["application_name"] = db.Schema
	if dial != nil {
		cfg.DialFunc = dial
	}
	pool := bun.NewDB(sql.OpenDB(pgsql.NewConnector(*cfg)), pgdialect.New())
	t.Cleanup(func() { _ = pool.Close() })
	pool.SetMaxOpenConns(1)
	return pool
}

// A transaction has locked the rows. A request that waits for it and gives up leaves no session at the server, which no limit of the pool
// would count, and no statement that is carried out when nobody expects it any more.
func TestStatementThatIsGivenUpLeavesNoSession(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	pool := oneConnection(t, db, nil)
	store := newStore(t, db, 0)
	waiting := func() int {
		return count(t, db, "SELECT count(*) FROM pg_stat_activity WHERE application_name = '"+db.Schema+"' AND wait_event_type = 'Lock'")
	}
	// under runs fn while the rows are locked, until it has waited and has ended.
	under := func(name string, fn func(ctx context.Context)) (waited bool) {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer tx.Rollback()
		_, err = tx.Exec("SELECT FROM idempotency_keys FOR SHARE")
		require.NoError(t, err)
		ctx, giveUp := context.WithCancel(t.Context())
		defer giveUp()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			fn(ctx)
		}()
		await.True(t, func() bool {
			select {
			case <-ended:
				return true
			default:
				waited = waiting() > 0
				return waited
			}
		}, "%s to wait for the lock", name)
		giveUp()
		await.Receive(t, ended, "%s to be given up", name)
		await.True(t, func() bool { return waiting() == 0 }, "the server to end the statement of %s", name)
		return waited
	}

	key, answered := keyOf(t, store, "claimed"), keyOf(t, store, "answered")
	complete(t, store, db.DB, answered, idempotency.Response{Status: 200})
	claim(t, store, pool, key)
	endLeases(t, db)
	step := idempotency.Unknown{Step: "s", Epoch: 1}
	require.NoError(t, db.NewRaw("SELECT encode(key_hash, 'hex') FROM idempotency_keys WHERE state = 'claimed'").Scan(t.Context(), &step.Key))
	for name, fn := range map[string]func(ctx context.Context) error{
		"claim": func(ctx context.Context) error {
			_, _, err := store.Claim(ctx, pool, key, one)
			return err
		},
		"resolve": func(ctx context.Context) error {
			_, err := store.Resolve(ctx, pool, step, idempotency.StepNotDone())
			return err
		},
		"erase": func(ctx context.Context) error {
			_, err := store.Erase(ctx, pool, "acme", "u1")
			return err
		},
		"release": func(ctx context.Context) error {
			_, err := store.Release(ctx, pool, answered)
			return err
		},
	} {
		require.True(t, under(name, func(ctx context.Context) {
			if err := fn(ctx); err == nil {
				t.Errorf("%s: it has not waited", name)
			}
		}), name)
	}

	// These end by themselves.
	for name, fn := range map[string]func(ctx context.Context, c *idempotency.Claim) error{
		"renewal": func(_ context.Context, c *idempotency.Claim) error {
			return c.Keep(context.Background(), func(ctx context.Context) error {
				<-ctx.Done()
				return context.Cause(ctx)
			})
		},
		"completion": func(ctx context.Context, c *idempotency.Claim) error {
			return c.Complete(ctx, pool, idempotency.Response{Status: 200})
		},
	} {
		patiently(t, 600*time.Millisecond, func(lease time.Duration) bool {
			endLeases(t, db)
			c := claim(t, store, pool, key, idempotency.WithLease(lease))
			return under(name, func(ctx context.Context) {
				if err := fn(ctx, c); err == nil {
					t.Errorf("%s: it has not waited", name)
				}
			})
		})
	}
}
