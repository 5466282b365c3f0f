package idempotency_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/idempotency"
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
	db := pgtest.Migrated(t)
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
	db := pgtest.Migrated(t)
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
	db := pgtest.Migrated(t)
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
	db := pgtest.Migrated(t)
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

// The statement that begins a key gets its snapshot before the lock. Here the holder of the key commits in between: a
// look-up with that snapshot would take the key for a new one and do the work again.
func TestLookupSeesWhatTheLastHolderCommitted(t *testing.T) {
	db := pgtest.Migrated(t)
	store := newStore(t, db, 0)
	key := keyOf(t, store, "k")

	holder, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer holder.Rollback()
	_, err = store.Begin(t.Context(), holder, key, one)
	require.NoError(t, err)
	require.NoError(t, store.Complete(t.Context(), holder, key, one, idempotency.Response{Status: 200}))
	var hash []byte
	require.NoError(t, holder.QueryRowContext(t.Context(), "SELECT key_hash FROM idempotency_keys").Scan(&hash))
	_, err = holder.ExecContext(t.Context(), "SELECT pg_advisory_xact_lock(hashtext(?))", db.Schema)
	require.NoError(t, err)

	second, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer second.Close()
	var pid int
	require.NoError(t, second.QueryRowContext(t.Context(), "SELECT pg_backend_pid()").Scan(&pid))
	type result struct {
		locked bool
		state  sql.NullString
		err    error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		r.err = second.QueryRowContext(t.Context(), `SELECT b.locked, b.state
			FROM (SELECT pg_advisory_xact_lock(hashtext(?)) IS NULL AS waited OFFSET 0) gate,
			LATERAL idempotency_begin(CASE WHEN gate.waited THEN ?::bytea ELSE ?::bytea END) b`, db.Schema, hash, hash).Scan(&r.locked, &r.state)
		done <- r
	}()
	require.Eventually(t, func() bool {
		var waiting bool
		err := db.QueryRowContext(t.Context(), "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = ?", pid).Scan(&waiting)
		return err == nil && waiting
	}, 10*time.Second, 5*time.Millisecond)
	require.NoError(t, holder.Commit())

	r := <-done
	require.NoError(t, r.err)
	require.True(t, r.locked)
	require.Equal(t, "completed", r.state.String)
}

// As two versions of this package might do, which make their locks in different ways.
func TestPrimaryKeyIsTheLastWord(t *testing.T) {
	db := pgtest.Migrated(t)
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

func TestSchemasDoNotShareLocks(t *testing.T) {
	a, b := pgtest.Migrated(t), pgtest.Migrated(t)
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
	db := pgtest.Migrated(t)
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
	db := pgtest.Migrated(t)
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
	db := pgtest.Migrated(t)
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
	db := pgtest.Migrated(t)
	store := newStore(t, db, 0)
	for _, k := range []string{"a", "b"} {
		complete(t, store, db.DB, keyOf(t, store, k), idempotency.Response{Status: 200})
	}
	exec(t, db, "UPDATE idempotency_keys SET expires_at = now()")
	require.NoError(t, transact(t, db.DB, func(tx bun.IDB) error {
		_, err := store.Begin(t.Context(), tx, keyOf(t, store, "a"), one)
		require.NoError(t, err)
		require.NoError(t, store.Complete(t.Context(), tx, keyOf(t, store, "a"), one, idempotency.Response{Status: 201}))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		n, err := store.Purge(ctx, db.DB)
		require.EqualValues(t, 1, n)
		return err
	}))
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM idempotency_keys WHERE status = 201"))
}

func TestReleaseForgetsTheAnswer(t *testing.T) {
	db := pgtest.Migrated(t)
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

func TestBeginRefusesThePool(t *testing.T) {
	db := pgtest.Migrated(t)
	store := newStore(t, db, 0)
	_, err := store.Begin(t.Context(), db.DB, keyOf(t, store, "k"), one)
	require.ErrorContains(t, err, "needs a transaction")
}

func TestMissingTableNamesTheCallThatMakesIt(t *testing.T) {
	db := pgtest.Open(t)
	store := newStore(t, db, 0)
	_, err := store.Lookup(t.Context(), db.DB, keyOf(t, store, "k"), one)
	require.ErrorContains(t, err, "migrations.Up")
}

func TestRecentIsAHintOnlyForKeysThatWereSeen(t *testing.T) {
	db := pgtest.Migrated(t)
	store, another := newStore(t, db, 0), newStore(t, db, 0)
	key := keyOf(t, store, "k")
	require.False(t, store.Recent(key))
	complete(t, store, db.DB, key, idempotency.Response{Status: 200})
	require.True(t, store.Recent(key))
	require.False(t, another.Recent(key))
	_, err := another.Lookup(t.Context(), db.DB, key, one)
	require.NoError(t, err)
	require.True(t, another.Recent(key))
}

func TestKeyAndPrincipalAreNotInTheTable(t *testing.T) {
	db := pgtest.Migrated(t)
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
	db := pgtest.Migrated(t)
	for name, change := range map[string]string{
		"completed without a status":    "status = NULL",
		"completed without headers":     "headers = NULL",
		"completed at no time":          "completed_at = NULL",
		"body lost without a reason":    "body = NULL",
		"body kept and omitted":         "omitted = 'too_large'",
		"completed and locked":          "locked_until = now()",
		"an answer that is not one":     "status = 102",
		"headers that are a list":       "headers = '[]'",
		"a hash that is none":           "key_hash = 'short'",
		"in progress with an answer":    "state = 'claimed', owner = gen_random_uuid(), locked_until = now()",
		"in progress without an owner":  "state = 'claimed', status = NULL, headers = NULL, completed_at = NULL, body = NULL",
		"a state that nobody has heard": "state = 'done'",
	} {
		t.Run(name, func(t *testing.T) {
			store := newStore(t, db, 0)
			complete(t, store, db.DB, keyOf(t, store, name), idempotency.Response{Status: 200})
			_, err := db.ExecContext(t.Context(), "UPDATE idempotency_keys SET "+change)
			require.Equal(t, "23514", pgsql.Code(err), "a check constraint refuses it: %v", err)
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
