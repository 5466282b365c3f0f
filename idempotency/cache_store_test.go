package idempotency_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// found is what a look-up gives the request that completed the key.
func found(t *testing.T, store *idempotency.Store, db bun.IDB, key idempotency.Key) *idempotency.Response {
	t.Helper()
	resp, err := store.Lookup(t.Context(), db, key, one)
	require.NoError(t, err)
	return resp
}

// An answer that was looked up is given from memory, to the same request and to no other one, until it is released.
func TestAnswerIsCached(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, 0)
	key := keyOf(t, store, "k")
	complete(t, store, db.DB, key, idempotency.Response{Status: 201, Body: []byte("x")})
	first := found(t, store, db.DB, key)
	exec(t, db, "TRUNCATE idempotency_keys CASCADE")

	require.True(t, store.Middleware().SeenRecently(key))
	require.Equal(t, first, found(t, store, db.DB, key))
	_, err := store.Lookup(t.Context(), db.DB, key, other)
	require.ErrorIs(t, err, idempotency.ErrMismatch)
	got, err := store.Lookup(t.Context(), db.DB, key, idempotency.NewFingerprint("another kind"))
	require.NoError(t, err, "fingerprints of another kind tell nothing")
	require.Equal(t, first, got)

	_, err = store.Release(t.Context(), db.DB, key)
	require.NoError(t, err)
	require.Nil(t, found(t, store, db.DB, key))
}

// In a transaction it is released when that is committed, and until then others read it.
func TestReleaseInATransaction(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, 0)
	key := keyOf(t, store, "k")
	complete(t, store, db.DB, key, idempotency.Response{Status: 201})
	require.NoError(t, transact(t, db.DB, func(tx bun.IDB) error {
		released, err := store.Release(t.Context(), tx, key)
		require.True(t, released)
		require.NotNil(t, found(t, store, db.DB, key))
		return err
	}))
	require.Nil(t, found(t, store, db.DB, key))
}

// A store is not bound to a database.
func TestAnswersOfTwoDatabases(t *testing.T) {
	t.Parallel()
	first, second := pgtest.Migrated(t, pgtest.Idempotency), pgtest.Migrated(t, pgtest.Idempotency)
	store := idempotency.NewStore(nil)
	key := keyOf(t, store, "k")
	complete(t, store, first.DB, key, idempotency.Response{Status: 201})
	require.NotNil(t, found(t, store, first.DB, key))
	require.Nil(t, found(t, store, second.DB, key))
}

// An answer that expires before the cache would forget it is not cached.
func TestAnswerThatExpiresSoonIsNotCached(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, time.Minute)
	key := keyOf(t, store, "k")
	complete(t, store, db.DB, key, idempotency.Response{Status: 201})
	require.NotNil(t, found(t, store, db.DB, key))
	exec(t, db, "TRUNCATE idempotency_keys CASCADE")
	require.Nil(t, found(t, store, db.DB, key))
}

// A transaction sees its own answers, and nobody else may: it can still be rolled back.
func TestAnswerThatIsNotCommittedIsNotCached(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, 0)
	key := keyOf(t, store, "k")
	require.ErrorIs(t, transact(t, db.DB, func(tx bun.IDB) error {
		_, err := store.Begin(t.Context(), tx, key, one)
		require.NoError(t, err)
		require.NoError(t, store.Complete(t.Context(), tx, key, one, idempotency.Response{Status: 201}))
		require.NotNil(t, found(t, store, tx, key))
		return idempotency.ErrInProgress
	}), idempotency.ErrInProgress)
	require.Nil(t, found(t, store, db.DB, key))
}
