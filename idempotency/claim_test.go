package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/step"
)

func claim(t *testing.T, store *idempotency.Store, db bun.IDB, key idempotency.Key, opts ...idempotency.ClaimOption) *idempotency.Claim {
	t.Helper()
	c, resp, err := store.Claim(t.Context(), db, key, one, opts...)
	require.NoError(t, err)
	require.Nil(t, resp)
	require.NotNil(t, c)
	return c
}

// endLeases makes it so that the leases have ended without a word from their holders.
func endLeases(t *testing.T, db *pgtest.DB) {
	t.Helper()
	exec(t, db, "UPDATE idempotency_keys SET locked_until = clock_timestamp() - interval '1 s' WHERE state = 'claimed'")
}

func TestClaimIsCompletedAndAnswersFromThenOn(t *testing.T) {
	t.Parallel()
	for _, pooler := range []bool{false, true} {
		db := pgtest.Migrated(t, pgtest.Idempotency)
		if pooler {
			db = db.Pooled(t)
		}
		store := idempotency.NewStore(&idempotency.Config{Schema: db.Schema, Pooler: pooler, TTL: time.Hour})
		key := keyOf(t, store, "k")
		want := idempotency.Response{Status: 201, Header: map[string][]string{"Location": {"/1"}}, Body: []byte("\x00b")}
		c := claim(t, store, db.DB, key)
		require.NoError(t, c.Run(t.Context(), func(ctx context.Context) error {
			_, err := step.Call(ctx, "call", func(context.Context, string) (int, error) { return 1, nil })
			require.NoError(t, err)
			_, err = idempotency.StepOnce(ctx, "once", func(context.Context) (int, error) { return 1, nil })
			return err
		}))
		require.Equal(t, 2, count(t, db, "SELECT count(*) FROM idempotency_step"))
		for range 2 { // the owner may not know whether the first one was committed
			require.NoError(t, c.Complete(t.Context(), db.DB, want))
		}
		require.True(t, store.Middleware().SeenRecently(key))
		require.Zero(t, count(t, db, "SELECT count(*) FROM idempotency_step"))
		require.Equal(t, 1, count(t, db, "SELECT count(*) FROM idempotency_keys WHERE expires_at = completed_at + interval '1 hour' AND locked_until IS NULL"))

		again, got, err := store.Claim(t.Context(), db.DB, key, one)
		require.NoError(t, err)
		require.Nil(t, again)
		require.Equal(t, &want, got)
		_, _, err = store.Claim(t.Context(), db.DB, key, other)
		require.ErrorIs(t, err, idempotency.ErrMismatch)
		require.ErrorIs(t, c.Release(t.Context()), idempotency.ErrLeaseLost, "there is nothing to release")
		require.NoError(t, transact(t, db.DB, func(tx bun.IDB) error {
			got, err := store.Begin(t.Context(), tx, key, one)
			require.Equal(t, &want, got, "the two modes read the same answers")
			return err
		}))
	}
}

func TestClaimedKey(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, 0)
	key := keyOf(t, store, "k")
	c := claim(t, store, db.DB, key, idempotency.WithLease(time.Hour))

	_, _, err := store.Claim(t.Context(), db.DB, key, other)
	require.ErrorIs(t, err, idempotency.ErrMismatch, "looked at first")
	_, _, err = store.Claim(t.Context(), db.DB, key, one)
	require.ErrorIs(t, err, idempotency.ErrInProgress)
	var busy *idempotency.InProgressError
	require.ErrorAs(t, err, &busy)
	require.Greater(t, busy.Rest, 50*time.Minute)
	require.LessOrEqual(t, busy.Rest, time.Hour)

	for name, begin := range map[string]func(tx bun.IDB) error{
		"begin": func(tx bun.IDB) error {
			_, err := store.Begin(t.Context(), tx, key, one)
			return err
		},
		"complete": func(tx bun.IDB) error {
			return store.Complete(t.Context(), tx, key, one, idempotency.Response{Status: 200})
		},
	} {
		require.ErrorIs(t, transact(t, db.DB, begin), idempotency.ErrInProgress, "a transaction does not: %s", name)
	}
	require.NoError(t, c.Complete(t.Context(), db.DB, idempotency.Response{Status: 200}))
}

// A transaction learns that a key is stuck as a claim does, also while another one has its lock.
func TestUnknownKeyForATransaction(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.unknown("pay")
	_, _, err := d.store.Claim(t.Context(), d.db.DB, d.key, one)
	require.ErrorIs(t, err, idempotency.ErrStepUnknown)
	_, err = d.store.Lookup(t.Context(), d.db.DB, d.key, one)
	require.ErrorIs(t, err, idempotency.ErrStepUnknown)
	begin := func(tx bun.IDB) error {
		_, err := d.store.Begin(t.Context(), tx, d.key, other)
		require.ErrorIs(t, err, idempotency.ErrMismatch)
		_, err = d.store.Begin(t.Context(), tx, d.key, one)
		return err
	}
	require.ErrorIs(t, transact(t, d.db.DB, func(tx bun.IDB) error {
		require.ErrorIs(t, transact(t, d.db.DB, begin), idempotency.ErrStepUnknown)
		return begin(tx)
	}), idempotency.ErrStepUnknown)
	begun, xid := queued(t, d.db, d.store, d.key, one)
	require.ErrorIs(t, begun.Err, idempotency.ErrStepUnknown)
	require.Empty(t, xid)
}

func TestOfManyClaimsOneIsMade(t *testing.T) {
	t.Parallel()
	for _, isolation := range []string{"read committed", "serializable"} {
		t.Run(isolation, func(t *testing.T) {
			db := pgtest.Migrated(t, pgtest.Idempotency)
			db.DSN += "&default_transaction_isolation=" + url.PathEscape(isolation)
			store, pool := newStore(t, db, 0), db.Another(t)
			for _, what := range []string{"a new key", "a takeover"} {
				endLeases(t, db)
				var made atomic.Int64
				var group sync.WaitGroup
				for range 50 {
					group.Go(func() {
						c, resp, err := store.Claim(t.Context(), pool, keyOf(t, store, "k"), one)
						switch {
						case c != nil:
							made.Add(1)
						case resp != nil || !errors.Is(err, idempotency.ErrInProgress):
							t.Errorf("neither claimed nor in progress: %v", err)
						}
					})
				}
				group.Wait()
				require.EqualValues(t, 1, made.Load(), what)
			}
		})
	}
}

func TestEndedLeaseIsTakenOverAndItsOwnerIsRefused(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, 0)
	key := keyOf(t, store, "k")
	late := claim(t, store, db.DB, key, idempotency.WithLease(time.Hour))
	endLeases(t, db)
	_, _, err := store.Claim(t.Context(), db.DB, key, other)
	require.ErrorIs(t, err, idempotency.ErrMismatch, "another request takes nothing over")

	next := claim(t, store, db.DB, key)
	require.Equal(t, 2, count(t, db, "SELECT epoch FROM idempotency_keys"))
	require.ErrorIs(t, late.Complete(t.Context(), db.DB, idempotency.Response{Status: 500}), idempotency.ErrLeaseLost)
	late.Age(40 * time.Minute) // it is renewed before anything runs
	require.ErrorIs(t, late.Keep(t.Context(), func(context.Context) error {
		t.Error("it was called")
		return nil
	}), idempotency.ErrLeaseLost)
	require.ErrorIs(t, late.Release(t.Context()), idempotency.ErrLeaseLost)
	_, _, err = store.Claim(t.Context(), db.DB, key, one)
	require.ErrorIs(t, err, idempotency.ErrInProgress, "it did not end the lease of the other one")
	require.NoError(t, next.Complete(t.Context(), db.DB, idempotency.Response{Status: 201}))
	require.ErrorIs(t, late.Complete(t.Context(), db.DB, idempotency.Response{Status: 500}), idempotency.ErrLeaseLost)
	_, got, err := store.Claim(t.Context(), db.DB, key, one)
	require.NoError(t, err)
	require.Equal(t, 201, got.Status)
}

// Nobody has taken it: what the owner has done is not lost because it was slow.
func TestEndedLeaseThatNobodyTookIsStillOnes(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, 0)
	c := claim(t, store, db.DB, keyOf(t, store, "k"))
	endLeases(t, db)
	require.NoError(t, c.Complete(t.Context(), db.DB, idempotency.Response{Status: 201}))
}

func TestReleaseLetsTheNextOneGoOnAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, 0)
	key := keyOf(t, store, "k")
	c := claim(t, store, db.DB, key, idempotency.WithLease(time.Hour))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, c.Release(ctx), "also if the caller is told to end")
	_, _, err := store.Claim(t.Context(), db.DB, key, other)
	require.ErrorIs(t, err, idempotency.ErrMismatch, "the key stays that of its request")
	require.NoError(t, claim(t, store, db.DB, key).Complete(t.Context(), db.DB, idempotency.Response{Status: 201}))
}

// Such as a renewal that nobody waits for any more, and that the network has held up.
func TestNothingIsWrittenUnderAClaimThatWasReleased(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, 0)
	c := claim(t, store, db.DB, keyOf(t, store, "k"), idempotency.WithLease(time.Minute))
	require.NoError(t, c.Release(t.Context()))
	c.Age(20 * time.Second) // it is renewed before anything runs
	require.ErrorIs(t, c.Keep(t.Context(), func(context.Context) error {
		t.Error("it was called")
		return nil
	}), idempotency.ErrLeaseLost)
	require.ErrorIs(t, c.Complete(t.Context(), db.DB, idempotency.Response{Status: 200}), idempotency.ErrLeaseLost)
	require.ErrorIs(t, c.Release(t.Context()), idempotency.ErrLeaseLost)
	require.Zero(t, count(t, db, "SELECT count(*) FROM idempotency_keys WHERE locked_until > clock_timestamp()"))
}

func TestRunRenewsTheLease(t *testing.T) {
	t.Parallel()
	patiently(t, time.Second, func(lease time.Duration) bool {
		db := pgtest.Migrated(t, pgtest.Idempotency)
		store := newStore(t, db, time.Microsecond) // the lease counts as well
		key := keyOf(t, store, "k")
		c := claim(t, store, db.DB, key, idempotency.WithLease(lease))
		exec(t, db, "CREATE TABLE first AS SELECT locked_until FROM idempotency_keys")
		twice := fmt.Sprintf("SELECT count(*) FROM idempotency_keys k, first f WHERE k.locked_until > f.locked_until + interval '%f s'", lease.Seconds())
		err := c.Run(t.Context(), func(ctx context.Context) error {
			for count(t, db, twice) == 0 {
				if !soon(ctx) {
					return ctx.Err()
				}
			}
			_, err := store.Purge(ctx, db.DB)
			if ctx.Err() == nil {
				require.NoError(t, err)
			}
			_, _, err = store.Claim(ctx, db.DB, key, one)
			if !errors.Is(err, idempotency.ErrInProgress) {
				<-ctx.Done() // another one has it: the lease has ended
			}
			return ctx.Err()
		})
		if err != nil {
			require.ErrorIs(t, err, idempotency.ErrLeaseLost)
			return false
		}
		require.NoError(t, c.Complete(t.Context(), db.DB, idempotency.Response{Status: 200}))
		return true
	})
}

func TestRunIsCancelledWhenTheLeaseIsLost(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, tc := range map[string]func(t *testing.T, db *pgtest.DB, pool *bun.DB, store *idempotency.Store, key idempotency.Key){
		"to another one": func(t *testing.T, db *pgtest.DB, _ *bun.DB, store *idempotency.Store, key idempotency.Key) {
			for { // it may be renewed in between
				endLeases(t, db)
				c, _, err := store.Claim(t.Context(), db.DB, key, one, idempotency.WithLease(time.Hour))
				if c != nil {
					return
				}
				require.ErrorIs(t, err, idempotency.ErrInProgress)
			}
		},
		"as far as one can know": func(t *testing.T, _ *pgtest.DB, pool *bun.DB, _ *idempotency.Store, _ idempotency.Key) {
			require.NoError(t, pool.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			db := pgtest.Migrated(t, pgtest.Idempotency)
			store := newStore(t, db, 0)
			key := keyOf(t, store, "k")
			pool := db.Another(t)
			c := claim(t, store, pool, key, idempotency.WithLease(time.Second))
			err := c.Run(t.Context(), func(ctx context.Context) error {
				tc(t, db, pool, store, key)
				await.Receive(t, ctx.Done(), "the function to be told")
				require.ErrorIs(t, context.Cause(ctx), idempotency.ErrLeaseLost)
				return boom
			})
			require.ErrorIs(t, err, idempotency.ErrLeaseLost)
			require.ErrorIs(t, err, boom)
		})
	}
}

func TestRunReturnsWhatItsFunctionReturns(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, 0)
	c := claim(t, store, db.DB, keyOf(t, store, "k"))
	boom := errors.New("boom")
	require.Equal(t, boom, c.Run(t.Context(), func(context.Context) error { return boom }))
	require.PanicsWithValue(t, boom, func() { _ = c.Run(t.Context(), func(context.Context) error { panic(boom) }) })
	require.NoError(t, c.Complete(t.Context(), db.DB, idempotency.Response{Status: 200}), "it is claimed still")
}

func TestExpiredClaimIsANewKey(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, 0)
	key := keyOf(t, store, "k")
	c := claim(t, store, db.DB, key)
	require.NoError(t, c.Run(t.Context(), func(ctx context.Context) error {
		_, err := step.Call(ctx, "call", func(context.Context, string) (int, error) { return 1, nil })
		return err
	}))
	exec(t, db, "UPDATE idempotency_keys SET expires_at = clock_timestamp(), locked_until = clock_timestamp()")
	again, _, err := store.Claim(t.Context(), db.DB, key, other)
	require.NoError(t, err)
	require.Zero(t, count(t, db, "SELECT count(*) FROM idempotency_step"), "the steps of another request are not its own")
	require.NoError(t, again.Complete(t.Context(), db.DB, idempotency.Response{Status: 200}))
}

func TestPurgeRemovesStepsWithTheirKeys(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, 0)
	for _, k := range []string{"old", "new"} {
		require.NoError(t, claim(t, store, db.DB, keyOf(t, store, k)).Run(t.Context(), func(ctx context.Context) error {
			_, err := step.Call(ctx, k, func(context.Context, string) (int, error) { return 1, nil })
			return err
		}))
	}
	exec(t, db, "UPDATE idempotency_keys k SET expires_at = now() FROM idempotency_step s WHERE s.key_hash = k.key_hash AND s.name = 'old'")
	n, err := store.Purge(t.Context(), db.DB)
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM idempotency_step"))
}

func TestClaimIsCompletedInTheTransactionOfTheWork(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, 0)
	key := keyOf(t, store, "k")
	c := claim(t, store, db.DB, key)
	boom := errors.New("boom")
	require.ErrorIs(t, transact(t, db.DB, func(tx bun.IDB) error {
		require.NoError(t, c.Complete(t.Context(), tx, idempotency.Response{Status: 200}))
		return boom
	}), boom)
	_, _, err := store.Claim(t.Context(), db.DB, key, one)
	require.ErrorIs(t, err, idempotency.ErrInProgress)
	require.NoError(t, c.Release(t.Context()))
}

func TestClaimRefusesATransaction(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, 0)
	require.ErrorContains(t, transact(t, db.DB, func(tx bun.IDB) error {
		_, _, err := store.Claim(t.Context(), tx, keyOf(t, store, "k"), one)
		return err
	}), "call it with the pool")
}

func TestClaimWithoutTablesNamesTheCallThatMakesThem(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	store := newStore(t, db, 0)
	_, _, err := store.Claim(t.Context(), db.DB, keyOf(t, store, "k"), one)
	require.ErrorContains(t, err, "migrations.Up")
}

// However short the TTL is, a claim is remembered for as long as its lease.
func TestClaimDoesNotExpireBeforeItsLease(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, time.Microsecond)
	key := keyOf(t, store, "k")
	c := claim(t, store, db.DB, key)
	n, err := store.Purge(t.Context(), db.DB)
	require.NoError(t, err)
	require.Zero(t, n)
	_, _, err = store.Claim(t.Context(), db.DB, key, one)
	require.ErrorIs(t, err, idempotency.ErrInProgress)
	require.NoError(t, c.Release(t.Context()))
}
