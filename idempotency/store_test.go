package idempotency_test

import (
	"context"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/pgtest"
)

var (
	one   = idempotency.NewFingerprint("test-1", []byte("one"))
	other = idempotency.NewFingerprint("test-1", []byte("other"))
)

func newStore(t *testing.T, db *pgtest.DB, ttl time.Duration) *idempotency.Store {
	t.Helper()
	return idempotency.NewStore(&idempotency.Config{Schema: db.Schema, TTL: ttl})
}

func keyOf(t *testing.T, store *idempotency.Store, key string) idempotency.Key {
	t.Helper()
	k, err := store.Key(idempotency.Scope{Tenant: "acme", Principal: "u1", Method: "POST", Path: "/payments", Key: key})
	require.NoError(t, err)
	return k
}

// transact commits fn's work unless it fails.
func transact(t *testing.T, db *bun.DB, fn func(tx bun.IDB) error) error {
	t.Helper()
	return db.RunInTx(t.Context(), nil, func(_ context.Context, tx bun.Tx) error { return fn(tx) })
}

func complete(t *testing.T, store *idempotency.Store, db *bun.DB, key idempotency.Key, resp idempotency.Response) {
	t.Helper()
	require.NoError(t, transact(t, db, func(tx bun.IDB) error {
		stored, err := store.Begin(t.Context(), tx, key, one)
		require.NoError(t, err)
		require.Nil(t, stored)
		return store.Complete(t.Context(), tx, key, one, resp)
	}))
}

func TestAnswerIsStoredAsItIs(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	for name, resp := range map[string]idempotency.Response{
		"text":       {Status: 201, Header: map[string][]string{"Location": {"/payments/1"}, "Link": {"a", "b"}}, Body: []byte(`{"id": 1}`)},
		"all bytes":  {Status: 200, Header: map[string][]string{}, Body: []byte("\x00\xff\xfe\r\n\\x00")},
		"no body":    {Status: 204, Header: map[string][]string{}, Body: []byte{}},
		"large":      {Status: 200, Header: map[string][]string{}, Body: []byte(strings.Repeat("abc", 1<<18))},
		"odd header": {Status: 422, Header: map[string][]string{"X": {"\"\\\u2028<&>"}, "Y": nil}, Body: []byte("no")},
		"tombstone":  {Status: 200, Header: map[string][]string{"Location": {"/1"}}, Omitted: idempotency.OmittedTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			store := newStore(t, db, 0)
			key := keyOf(t, store, name)
			complete(t, store, db.DB, key, resp)

			got, err := store.Lookup(t.Context(), db.DB, key, one)
			require.NoError(t, err)
			require.Equal(t, &resp, got)
			require.NoError(t, transact(t, db.DB, func(tx bun.IDB) error {
				got, err := store.Begin(t.Context(), tx, key, one)
				require.Equal(t, &resp, got)
				return err
			}))
		})
	}
}

func TestStatementsRunBehindAPooler(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency).Pooled(t)
	store := idempotency.NewStore(&idempotency.Config{Schema: db.Schema, Pooler: true})
	resp := idempotency.Response{Status: 200, Header: map[string][]string{}, Body: []byte("b")}
	key := keyOf(t, store, "k")
	complete(t, store, db.DB, key, resp)
	got, err := store.Lookup(t.Context(), db.DB, key, one)
	require.NoError(t, err)
	require.Equal(t, &resp, got)
	_, err = store.Purge(t.Context(), db.DB)
	require.NoError(t, err)
}

func TestAnotherRequestIsAMismatch(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, 0)
	key := keyOf(t, store, "k")
	complete(t, store, db.DB, key, idempotency.Response{Status: 200})

	_, err := store.Lookup(t.Context(), db.DB, key, other)
	require.ErrorIs(t, err, idempotency.ErrMismatch)
	err = transact(t, db.DB, func(tx bun.IDB) error {
		_, err := store.Begin(t.Context(), tx, key, other)
		return err
	})
	require.ErrorIs(t, err, idempotency.ErrMismatch)

	newer := idempotency.NewFingerprint("test-2", []byte("one"))
	got, err := store.Lookup(t.Context(), db.DB, key, newer)
	require.NoError(t, err, "sums that were made in different ways are not compared")
	require.NotNil(t, got)
}

func TestSecondTransactionIsToldAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, 0)
	key := keyOf(t, store, "k")

	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	_, err = store.Begin(t.Context(), tx, key, one)
	require.NoError(t, err)

	for _, fp := range []idempotency.Fingerprint{one, other} {
		err = transact(t, db.DB, func(tx bun.IDB) error {
			_, err := store.Begin(t.Context(), tx, key, fp)
			return err
		})
		require.ErrorIs(t, err, idempotency.ErrInProgress)
	}
	require.NoError(t, transact(t, db.DB, func(tx bun.IDB) error {
		_, err := store.Begin(t.Context(), tx, keyOf(t, store, "another"), one)
		return err
	}), "other keys are free")

	require.NoError(t, tx.Rollback())
	complete(t, store, db.DB, key, idempotency.Response{Status: 200})
}

// Two retries at once: one has the lock, and only because it reads. The other one is not told to wait for an answer that
// is there.
func TestRetriesDoNotStandInEachOthersWay(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, 0)
	key := keyOf(t, store, "k")
	complete(t, store, db.DB, key, idempotency.Response{Status: 200})
	begin := func(tx bun.IDB, fp idempotency.Fingerprint) (*idempotency.Response, error) {
		return store.Begin(t.Context(), tx, key, fp)
	}
	require.NoError(t, transact(t, db.DB, func(first bun.IDB) error {
		got, err := begin(first, one)
		require.NoError(t, err)
		require.NotNil(t, got)
		return transact(t, db.DB, func(second bun.IDB) error {
			got, err := begin(second, one)
			require.NoError(t, err)
			require.NotNil(t, got)
			_, err = begin(second, other)
			require.ErrorIs(t, err, idempotency.ErrMismatch)
			return nil
		})
	}))
}

// As two versions of this package might do, which make their locks in different ways.
func TestPrimaryKeyIsTheLastWord(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, 0)
	key := keyOf(t, store, "k")
	err := transact(t, db.DB, func(tx bun.IDB) error {
		_, err := store.Begin(t.Context(), tx, key, one)
		require.NoError(t, err)
		// Another one completes it without the lock.
		require.NoError(t, transact(t, db.DB, func(tx bun.IDB) error {
			return store.Complete(t.Context(), tx, key, one, idempotency.Response{Status: 201})
		}))
		return store.Complete(t.Context(), tx, key, one, idempotency.Response{Status: 200})
	})
	require.ErrorIs(t, err, idempotency.ErrInProgress)
	got, err := store.Lookup(t.Context(), db.DB, key, one)
	require.NoError(t, err)
	require.Equal(t, 201, got.Status)
}

// PostgreSQL writes the errors of a busy key to its log, and shows what it says to the readers of that log.
func TestErrorOfATakenKeyHasNoAnswerInIt(t *testing.T) {
	t.Parallel()
	for _, pooler := range []bool{false, true} {
		db := pgtest.Migrated(t, pgtest.Idempotency)
		store := idempotency.NewStore(&idempotency.Config{Schema: db.Schema, Pooler: pooler})
		key := keyOf(t, store, "k")
		secret := idempotency.Response{Status: 201, Header: map[string][]string{"Location": {"/planted"}}, Body: []byte("planted")}
		complete(t, store, db.DB, key, secret)
		for range 2 {
			conn, tx := begin(t, db)
			b := &pgsql.Batch{}
			require.NoError(t, store.Middleware().QueueComplete(b, &key, &one, &secret))
			b.Queue("CREATE TABLE behind_it ()")
			err := pgsql.Send(t.Context(), conn, tx, b)
			require.NoError(t, tx.Rollback())
			require.True(t, store.Middleware().IsTaken(err), "%v", err)
			pg, ok := errors.AsType[*pgconn.PgError](err)
			require.True(t, ok)
			require.Empty(t, pg.Detail)
			for _, said := range []string{pg.Message, pg.Hint, pg.Where, pg.InternalQuery} {
				require.NotContains(t, said, "planted")
				require.NotContains(t, said, hex.EncodeToString([]byte("planted")))
				require.NotContains(t, said, "acme")
			}
		}
		require.Zero(t, count(t, db, "SELECT count(*) FROM pg_class WHERE relname = 'behind_it' AND relnamespace = current_schema()::regnamespace"))
	}
}

func TestSchemasDoNotShareLocks(t *testing.T) {
	t.Parallel()
	a, b := pgtest.Migrated(t, pgtest.Idempotency), pgtest.Migrated(t, pgtest.Idempotency)
	require.NoError(t, transact(t, a.DB, func(txA bun.IDB) error {
		return transact(t, b.DB, func(txB bun.IDB) error {
			storeA, storeB := newStore(t, a, 0), newStore(t, b, 0)
			_, errA := storeA.Begin(t.Context(), txA, keyOf(t, storeA, "k"), one)
			_, errB := storeB.Begin(t.Context(), txB, keyOf(t, storeB, "k"), one)
			return errors.Join(errA, errB)
		})
	}))
}

func TestRollbackLeavesNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, 0)
	key := keyOf(t, store, "k")
	boom := errors.New("boom")
	require.ErrorIs(t, transact(t, db.DB, func(tx bun.IDB) error {
		_, err := store.Begin(t.Context(), tx, key, one)
		require.NoError(t, err)
		require.NoError(t, store.Complete(t.Context(), tx, key, one, idempotency.Response{Status: 200}))
		return boom
	}), boom)
	require.Zero(t, count(t, db, "SELECT count(*) FROM idempotency_keys"))
	complete(t, store, db.DB, key, idempotency.Response{Status: 200})
}

func TestExpiredKeyIsANewOne(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, time.Hour)
	key := keyOf(t, store, "k")
	complete(t, store, db.DB, key, idempotency.Response{Status: 200, Body: []byte("old")})
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM idempotency_keys WHERE expires_at = completed_at + interval '1 hour'"))
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM idempotency_keys WHERE completed_at BETWEEN now() - interval '1 minute' AND now()"))

	exec(t, db, "UPDATE idempotency_keys SET expires_at = now()")
	got, err := store.Lookup(t.Context(), db.DB, key, other)
	require.NoError(t, err)
	require.Nil(t, got)

	complete(t, store, db.DB, key, idempotency.Response{Status: 201, Body: []byte("new")})
	got, err = store.Lookup(t.Context(), db.DB, key, one)
	require.NoError(t, err)
	require.Equal(t, &idempotency.Response{Status: 201, Header: map[string][]string{}, Body: []byte("new")}, got)
}

func TestPurgeTakesWhatExpiredAndNothingElse(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := idempotency.NewStore(&idempotency.Config{Schema: db.Schema, PurgeBatch: 3})
	forever := newStore(t, db, idempotency.KeepForever)
	complete(t, forever, db.DB, keyOf(t, forever, "forever"), idempotency.Response{Status: 200})
	for k := range strings.SplitSeq("abcdefghij", "") {
		complete(t, store, db.DB, keyOf(t, store, k), idempotency.Response{Status: 200})
	}
	exec(t, db, "UPDATE idempotency_keys SET expires_at = now() WHERE ctid IN (SELECT ctid FROM idempotency_keys WHERE expires_at < 'infinity' LIMIT 7)")

	n, err := store.Purge(t.Context(), db.DB)
	require.NoError(t, err)
	require.EqualValues(t, 7, n)
	require.Equal(t, 4, count(t, db, "SELECT count(*) FROM idempotency_keys"))
	n, err = store.Purge(t.Context(), db.DB)
	require.NoError(t, err)
	require.Zero(t, n)
}

// A purge neither waits for a request that is just replacing an expired row, nor for another purge.
func TestPurgeLeavesLockedRowsAlone(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, 0)
	for _, k := range []string{"a", "b"} {
		complete(t, store, db.DB, keyOf(t, store, k), idempotency.Response{Status: 200})
	}
	exec(t, db, "UPDATE idempotency_keys SET expires_at = now()")
	require.NoError(t, transact(t, db.DB, func(tx bun.IDB) error {
		_, err := store.Begin(t.Context(), tx, keyOf(t, store, "a"), one)
		require.NoError(t, err)
		require.NoError(t, store.Complete(t.Context(), tx, keyOf(t, store, "a"), one, idempotency.Response{Status: 201}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		n, err := store.Purge(ctx, db.DB)
		require.EqualValues(t, 1, n)
		return err
	}))
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM idempotency_keys WHERE status = 201"))
}

func TestReleaseForgetsTheAnswer(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, 0)
	key := keyOf(t, store, "k")
	complete(t, store, db.DB, key, idempotency.Response{Status: 200})
	for _, want := range []bool{true, false} {
		released, err := store.Release(t.Context(), db.DB, key)
		require.NoError(t, err)
		require.Equal(t, want, released)
	}
	complete(t, store, db.DB, key, idempotency.Response{Status: 200})
}

// Keys that a request works on, and keys whose outcome is unknown, are not forgotten by mistake.
func TestReleaseLeavesClaimsAlone(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.unknown("pay")
	const steps = "SELECT count(*) FROM idempotency_step"
	for _, state := range []string{"claimed", "unknown"} {
		exec(t, d.db, "UPDATE idempotency_keys SET state = '"+state+"'")
		released, err := d.store.Release(t.Context(), d.db.DB, d.key)
		require.NoError(t, err)
		require.False(t, released)
		require.Equal(t, state, d.state())
		require.Equal(t, 1, count(t, d.db, steps))
	}
}

// Outside of a transaction a lock ends with its statement, and two would work at once.
func TestWhatNeedsATransactionTakesNothingElse(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, 0)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	never := func(context.Context) (int, error) {
		t.Error("it was called")
		return 0, nil
	}
	c := claim(t, store, db.DB, keyOf(t, store, "claimed"))
	for _, handle := range []bun.IDB{db.DB, conn} {
		_, err := store.Begin(t.Context(), handle, keyOf(t, store, "k"), one)
		require.ErrorContains(t, err, "needs a transaction")
		_, err = idempotency.Do(t.Context(), store, handle, payScope("k"), 1, never)
		require.ErrorContains(t, err, "needs a transaction")
		require.ErrorContains(t, c.Run(t.Context(), func(ctx context.Context) error {
			_, err := idempotency.StepTx(ctx, handle, "book", never)
			return err
		}), "needs a transaction")
	}
}

func TestMissingTableNamesTheCallThatMakesIt(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	store := newStore(t, db, 0)
	_, err := store.Lookup(t.Context(), db.DB, keyOf(t, store, "k"), one)
	require.ErrorContains(t, err, "migrations.Up")
}

func TestRecentIsAHintOnlyForKeysThatWereSeen(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store, another := newStore(t, db, 0), newStore(t, db, 0)
	key := keyOf(t, store, "k")
	require.False(t, store.Middleware().SeenRecently(key))
	complete(t, store, db.DB, key, idempotency.Response{Status: 200})
	require.False(t, store.Middleware().SeenRecently(key), "it may not be committed")
	store.Middleware().MarkSeen(key)
	require.True(t, store.Middleware().SeenRecently(key))
	require.False(t, another.Middleware().SeenRecently(key))
	_, err := another.Lookup(t.Context(), db.DB, key, one)
	require.NoError(t, err)
	require.True(t, another.Middleware().SeenRecently(key))

	claimed := keyOf(t, store, "claimed")
	c := claim(t, store, db.DB, claimed)
	for n, end := range []error{errors.New("boom"), nil} {
		_ = transact(t, db.DB, func(tx bun.IDB) error {
			require.NoError(t, c.Complete(t.Context(), tx, idempotency.Response{Status: 200}), n)
			return end
		})
		require.False(t, store.Middleware().SeenRecently(claimed))
	}
	require.NoError(t, c.Complete(t.Context(), db.DB, idempotency.Response{Status: 200}))
	require.True(t, store.Middleware().SeenRecently(claimed))
}

// At 3,000 new keys a second, ten seconds must not wipe out what was there.
func TestRecentOutlivesThousandsOfKeys(t *testing.T) {
	store := idempotency.NewStore(nil)
	for n := range 30_000 {
		store.Middleware().MarkSeen(keyOf(t, store, strconv.Itoa(n)))
	}
	found := 0
	for n := range 1000 {
		if store.Middleware().SeenRecently(keyOf(t, store, strconv.Itoa(n))) {
			found++
		}
	}
	require.Greater(t, found, 700)
}

func TestKeyAndPrincipalAreNotInTheTable(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, 0)
	key, err := store.Key(idempotency.Scope{Tenant: "acme", Principal: "planted-principal", Method: "POST", Path: "/planted-path", Key: "planted-key"})
	require.NoError(t, err)
	complete(t, store, db.DB, key, idempotency.Response{Status: 200})
	var row string
	const all = "SELECT row_to_json(k)::text || encode(key_hash, 'escape') || encode(fingerprint, 'escape') FROM idempotency_keys k"
	require.NoError(t, db.QueryRowContext(t.Context(), all).Scan(&row))
	require.Contains(t, row, "acme")
	require.NotContains(t, row, "planted")
}

func TestRowsThatCannotBe(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	for name, change := range map[string]string{
		"completed without a status":    "status = NULL",
		"completed without headers":     "headers = NULL",
		"body lost without a reason":    "body = NULL",
		"body kept and omitted":         "omitted = 'too_large'",
		"completed and locked":          "locked_until = now()",
		"in progress with an answer":    "state = 'claimed', owner = gen_random_uuid(), locked_until = now()",
		"in progress for ever":          "state = 'claimed', owner = gen_random_uuid(), status = NULL",
		"unknown and completed":         "state = 'unknown'",
		"a state that nobody has heard": "state = 'done'",
	} {
		t.Run(name, func(t *testing.T) {
			store := newStore(t, db, 0)
			complete(t, store, db.DB, keyOf(t, store, name), idempotency.Response{Status: 200})
			_, err := db.ExecContext(t.Context(), "UPDATE idempotency_keys SET "+change)
			require.Equal(t, "23514", pgerr.Code(err), "a check constraint refuses it: %v", err)
		})
	}
}

func exec(t *testing.T, db *pgtest.DB, query string) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), query)
	require.NoError(t, err)
}

func count(t *testing.T, db *pgtest.DB, query string) int {
	t.Helper()
	var n int
	require.NoError(t, db.QueryRowContext(t.Context(), query).Scan(&n))
	return n
}
