package idempotency_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// queued begins the key in a transaction of its own, and returns the id that PostgreSQL gave it, "" if none.
func queued(t *testing.T, db *pgtest.DB, store *idempotency.Store, key idempotency.Key, fp idempotency.Fingerprint) (*idempotency.Begun, string) {
	t.Helper()
	conn, tx := begin(t, db)
	b := &pgsql.Batch{}
	begun := store.Middleware().QueueBegin(b, &key, &fp)
	require.NoError(t, pgsql.Send(t.Context(), conn, tx, b))
	var xid sql.NullString
	require.NoError(t, tx.QueryRow("SELECT pg_current_xact_id_if_assigned()::text").Scan(&xid))
	require.NoError(t, tx.Rollback())
	return begun, xid.String
}

// begin begins a transaction on a connection whose statements can share a round trip.
func begin(t *testing.T, db *pgtest.DB) (bun.Conn, bun.Tx) {
	t.Helper()
	cfg, err := pgx.ParseConfig(db.DSN)
	require.NoError(t, err)
	pool := bun.NewDB(sql.OpenDB(pgsql.NewConnector(*cfg)), pgdialect.New())
	t.Cleanup(func() { _ = pool.Close() })
	conn, err := pool.Conn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	tx, err := conn.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	return conn, tx
}

// Requests that are about to work take an id. Requests that are sent away take none: retries, conflicts, and each look of a waiting request.
func TestOnlyNewKeysTakeAnIDOfATransaction(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, 0)
	resp := idempotency.Response{Status: 201, Header: map[string][]string{}, Body: []byte("b")}
	complete(t, store, db.DB, keyOf(t, store, "done"), resp)
	claim(t, store, db.DB, keyOf(t, store, "claimed"))
	busy, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer busy.Rollback()
	_, err = store.Begin(t.Context(), busy, keyOf(t, store, "busy"), one)
	require.NoError(t, err)

	for name, tc := range map[string]struct {
		fp   idempotency.Fingerprint
		resp *idempotency.Response
		err  error
	}{
		"new":     {fp: one},
		"done":    {fp: one, resp: &resp},
		"claimed": {fp: one, err: idempotency.ErrInProgress},
		"busy":    {fp: one, err: idempotency.ErrInProgress},
	} {
		key := keyOf(t, store, name)
		begun, xid := queued(t, db, store, key, tc.fp)
		require.ErrorIs(t, begun.Err, tc.err, name)
		require.Equal(t, tc.resp, begun.Response, name)
		require.Equal(t, begun.XID, xid, name)
		require.Equal(t, name == "new", xid != "", name)

		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = store.Begin(t.Context(), tx, key, tc.fp)
		require.ErrorIs(t, err, tc.err, name)
		var id sql.NullString
		require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT pg_current_xact_id_if_assigned()::text").Scan(&id))
		require.Empty(t, id.String, "%s: nobody has asked for it", name)
		require.NoError(t, tx.Rollback())
	}
	begun, xid := queued(t, db, store, keyOf(t, store, "done"), other)
	require.ErrorIs(t, begun.Err, idempotency.ErrMismatch)
	require.Empty(t, xid)
	_, xid = queued(t, db, store, keyOf(t, store, "new"), one)
	require.NotEmpty(t, xid)
	exec(t, db, "UPDATE idempotency_keys SET expires_at = now() WHERE state = 'completed'")
	begun, xid = queued(t, db, store, keyOf(t, store, "done"), one)
	require.NoError(t, begun.Err)
	require.Nil(t, begun.Response)
	require.Equal(t, begun.XID, xid)
	require.NotEmpty(t, xid, "a key that has expired is a new one")
}

func TestIdleTimeoutIsThatOfTheTransaction(t *testing.T) {
	t.Parallel()
	for _, pooler := range []bool{false, true} {
		db := pgtest.Migrated(t, pgtest.Idempotency)
		db.SetMaxOpenConns(1)
		store := idempotency.NewStore(&idempotency.Config{Schema: db.Schema, Pooler: pooler})
		show := func(tx bun.IDB) (value string) {
			require.NoError(t, tx.NewRaw("SHOW idle_in_transaction_session_timeout").Scan(t.Context(), &value))
			return value
		}
		within := func(session string, opts ...idempotency.BeginOption) (value string) {
			exec(t, db, "SET idle_in_transaction_session_timeout = '"+session+"'")
			require.NoError(t, transact(t, db.DB, func(tx bun.IDB) error {
				_, err := store.Begin(t.Context(), tx, keyOf(t, store, "k"), one, opts...)
				value = show(tx)
				return err
			}))
			require.Equal(t, session, show(db.DB), "after COMMIT")
			return value
		}
		require.Equal(t, "0", within("0"))
		require.Equal(t, "35min", within("0", idempotency.WithIdleTimeout(35*time.Minute)))
		require.Equal(t, "1500500ms", within("0", idempotency.WithIdleTimeout(1500*time.Second+500*time.Millisecond)))
		require.Equal(t, "2147483647ms", within("0", idempotency.WithIdleTimeout(100*24*time.Hour)))
		require.Equal(t, "77min", within("77min", idempotency.WithIdleTimeout(35*time.Minute)), "the session has a limit of its own")
	}
}

// The server gets no message from a machine that has vanished.
func TestKeyIsFreeAfterItsTransactionWasIdle(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, 0)
	key := keyOf(t, store, "k")
	var frozen bun.Tx
	for idle := 300 * time.Millisecond; ; idle *= 2 { // it counts between the statements of Begin as well
		var err error
		frozen, err = db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer frozen.Rollback()
		if _, err = store.Begin(t.Context(), frozen, key, one, idempotency.WithIdleTimeout(idle)); err == nil {
			break
		}
		require.Less(t, idle, 20*time.Second, "%v", err)
	}
	begin := func(tx bun.IDB) error {
		_, err := store.Begin(t.Context(), tx, key, one)
		return err
	}
	await.True(t, func() bool { return transact(t, db.DB, begin) == nil }, "the server to end the transaction that is idle")
	require.Error(t, store.Complete(t.Context(), frozen, key, one, idempotency.Response{Status: 200}))
}
