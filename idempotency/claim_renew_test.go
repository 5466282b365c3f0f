package idempotency_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/telemetry"
)

// patiently runs fn with longer and longer leases until it reports that it was not the machine which let one end: a process that
// stands still for longer than its lease loses it, as it should.
func patiently(t *testing.T, lease time.Duration, fn func(lease time.Duration) bool) {
	t.Helper()
	for ; !fn(lease); lease *= 2 {
		require.Less(t, lease, time.Minute, "not once, however long the lease")
	}
}

// soon waits for a moment, or for ctx. It reports whether ctx goes on.
func soon(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(10 * time.Millisecond):
		return true
	}
}

// A claim that found out something before, or waited for a connection, begins with a lease that is nearly as good as new.
func TestRunBeginsWithARenewalWhenMuchOfTheLeaseIsGone(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, 0)
	const grown = "SELECT count(*) FROM idempotency_keys k, first f WHERE k.locked_until > f.locked_until AND k.key_hash = f.key_hash"
	for name, keep := range map[string]func(c *idempotency.Claim, fn func(context.Context) error) error{
		"run":  func(c *idempotency.Claim, fn func(context.Context) error) error { return c.Run(t.Context(), fn) },
		"keep": func(c *idempotency.Claim, fn func(context.Context) error) error { return c.Keep(t.Context(), fn) },
	} {
		c := claim(t, store, db.DB, keyOf(t, store, name), idempotency.WithLease(time.Minute))
		exec(t, db, "DROP TABLE IF EXISTS first; CREATE TABLE first AS SELECT * FROM idempotency_keys ORDER BY created_at DESC LIMIT 1")
		c.Age(20 * time.Second)
		require.NoError(t, keep(c, func(context.Context) error {
			require.Equal(t, 1, count(t, db, grown), "%s: it is renewed before the function is called", name)
			return nil
		}))
		require.NoError(t, c.Complete(t.Context(), db.DB, idempotency.Response{Status: 200}))
	}
}

func TestNothingRunsUnderALeaseThatIsAnothers(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, 0)
	key := keyOf(t, store, "k")
	c := claim(t, store, db.DB, key, idempotency.WithLease(time.Minute))
	c.Age(time.Minute)
	endLeases(t, db)
	claim(t, store, db.DB, key)
	for _, keep := range []func(context.Context, func(context.Context) error) error{c.Keep, c.Run} {
		require.ErrorIs(t, keep(t.Context(), func(context.Context) error {
			t.Error("it was called")
			return nil
		}), idempotency.ErrLeaseLost)
	}
}

// A lease that has ended and that nobody wants is renewed as any other.
func TestEndedLeaseIsRenewedWhenRunBegins(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, 0)
	key := keyOf(t, store, "k")
	c := claim(t, store, db.DB, key, idempotency.WithLease(time.Minute))
	endLeases(t, db)
	c.Age(time.Minute)
	require.NoError(t, c.Run(t.Context(), func(ctx context.Context) error {
		_, _, err := store.Claim(ctx, db.DB, key, one)
		require.ErrorIs(t, err, idempotency.ErrInProgress)
		return ctx.Err()
	}))
	require.NoError(t, c.Complete(t.Context(), db.DB, idempotency.Response{Status: 200}))
}

// A renewal that failed is not the third part of a lease that is gone.
func TestRenewalThatFailsIsTriedAgainSoon(t *testing.T) {
	t.Parallel()
	patiently(t, time.Second, func(lease time.Duration) bool {
		db := pgtest.Migrated(t, pgtest.Idempotency)
		store := newStore(t, db, 0)
		c := claim(t, store, db.DB, keyOf(t, store, "k"), idempotency.WithLease(lease))
		exec(t, db, `CREATE SEQUENCE tries;
			CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM nextval('tries'); RAISE 'not now'; END $$;
			CREATE TRIGGER refuse BEFORE UPDATE ON idempotency_keys FOR EACH ROW EXECUTE FUNCTION refuse()`)
		require.ErrorIs(t, c.Run(t.Context(), func(ctx context.Context) error {
			await.Receive(t, ctx.Done(), "the function to be told")
			return context.Cause(ctx)
		}), idempotency.ErrLeaseLost)
		return count(t, db, "SELECT last_value FROM tries") > 3 // of about seven that a lease has time for
	})
}

// A renewal that hangs is given up in time for another one.
func TestRenewalThatHangsIsTriedAgain(t *testing.T) {
	t.Parallel()
	patiently(t, 1500*time.Millisecond, func(lease time.Duration) bool {
		db := pgtest.Migrated(t, pgtest.Idempotency)
		store := newStore(t, db, 0)
		c := claim(t, store, db.DB, keyOf(t, store, "k"), idempotency.WithLease(lease))
		exec(t, db, `CREATE SEQUENCE tries;
			CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				IF nextval('tries') = 1 THEN PERFORM pg_sleep(600); END IF; RETURN NEW; END $$;
			CREATE TRIGGER hang BEFORE UPDATE ON idempotency_keys FOR EACH ROW EXECUTE FUNCTION hang();
			CREATE TABLE first AS SELECT locked_until FROM idempotency_keys`)
		err := c.Run(t.Context(), func(ctx context.Context) error {
			for count(t, db, "SELECT count(*) FROM idempotency_keys k, first f WHERE k.locked_until > f.locked_until") == 0 {
				if !soon(ctx) {
					return context.Cause(ctx)
				}
			}
			return nil
		})
		if err != nil {
			require.ErrorIs(t, err, idempotency.ErrLeaseLost)
		}
		return err == nil
	})
}

// Renewals succeed for a while and then fail: the function's context ends when the last renewal ends, and not when the function believes it to.
func TestLostLeaseIsTheOneOfTheLastRenewal(t *testing.T) {
	t.Parallel()
	patiently(t, time.Second, func(lease time.Duration) bool {
		db := pgtest.Migrated(t, pgtest.Idempotency)
		store := newStore(t, db, 0)
		key := keyOf(t, store, "k")
		c := claim(t, store, db.DB, key, idempotency.WithLease(lease))
		exec(t, db, "CREATE TABLE first AS SELECT locked_until FROM idempotency_keys")
		inTime := false
		require.ErrorIs(t, c.Run(t.Context(), func(ctx context.Context) error {
			for count(t, db, "SELECT count(*) FROM idempotency_keys k, first f WHERE k.locked_until > f.locked_until") == 0 {
				if !soon(ctx) {
					return ctx.Err()
				}
			}
			exec(t, db, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
					IF NEW.owner = OLD.owner THEN RAISE 'not now'; END IF; RETURN NEW; END $$;
				CREATE TRIGGER refuse BEFORE UPDATE ON idempotency_keys FOR EACH ROW EXECUTE FUNCTION refuse()`)
			for {
				_, _, err := store.Claim(ctx, db.DB, key, one)
				if !errors.Is(err, idempotency.ErrInProgress) {
					break // another one has it, or ctx is done
				}
				soon(ctx)
			}
			select {
			case <-ctx.Done():
				inTime = true
			case <-time.After(lease / 6): // another one works already
				await.Receive(t, ctx.Done(), "the function to be told")
			}
			return ctx.Err()
		}), idempotency.ErrLeaseLost)
		return inTime
	})
}

// The answer of a function that has ended needs no lease any more.
func TestRunDoesNotWaitForARenewalThatHangs(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	var log logbook.Book
	store := idempotency.NewStore(&idempotency.Config{Schema: db.Schema, Telemetry: telemetry.Config{Logger: log.Logger()}})
	pool := db.Another(t)
	pool.SetMaxOpenConns(1)
	c := claim(t, store, pool, keyOf(t, store, "k"), idempotency.WithLease(time.Minute))
	c.Age(19 * time.Second) // a renewal has a third of the lease, from the next second on
	var busy bun.Conn
	var late *time.Timer
	require.NoError(t, c.Run(t.Context(), func(ctx context.Context) (err error) {
		if busy, err = pool.Conn(ctx); err != nil {
			return err
		}
		exec(t, db, "CREATE TABLE first AS SELECT locked_until FROM idempotency_keys")
		for pool.Stats().WaitCount == 0 && soon(ctx) {
			continue
		}
		late = time.AfterFunc(15*time.Second, func() { _ = busy.Close() })
		return context.Cause(ctx)
	}))
	require.True(t, late.Stop(), "it was waited for")
	require.NoError(t, busy.Close())
	require.Zero(t, count(t, db, "SELECT count(*) FROM idempotency_keys k, first f WHERE k.locked_until > f.locked_until"), "it was waited for")
	require.Empty(t, log.String())
	require.NoError(t, c.Complete(t.Context(), pool, idempotency.Response{Status: 200}))
}
