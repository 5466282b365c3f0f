package idempotency_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// A stored answer proves a transaction only if it is the very answer that it has stored.
func TestAnswerProvesTheTransactionThatStoredIt(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, 0)
	header := map[string][]string{"Location": {"/payments/1"}}
	resp := idempotency.Response{Status: 201, Header: header, Body: []byte("1")}
	key := keyOf(t, store, "k")
	var xid string
	err := transact(t, db.DB, func(tx bun.IDB) (err error) {
		require.NoError(t, store.Complete(t.Context(), tx, key, one, resp))
		require.NoError(t, tx.NewRaw("SELECT pg_current_xact_id()::text").Scan(t.Context(), &xid))
		found, err := store.Middleware().Completed(t.Context(), db.DB, key, resp, xid)
		require.NoError(t, err)
		require.False(t, found, "not yet")
		return nil
	})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		key  string
		resp idempotency.Response
		xid  string
		want bool
	}{
		"its own":             {"k", resp, xid, true},
		"another key":         {"other", resp, xid, false},
		"another transaction": {"k", resp, "7", false},
		"another status":      {"k", idempotency.Response{Status: 200, Header: header, Body: []byte("1")}, xid, false},
		"another header":      {"k", idempotency.Response{Status: 201, Body: []byte("1")}, xid, false},
		"another body":        {"k", idempotency.Response{Status: 201, Header: header, Body: []byte("2")}, xid, false},
		"a body left out":     {"k", idempotency.Response{Status: 201, Header: header, Omitted: idempotency.OmittedTooLarge}, xid, false},
	} {
		found, err := store.Middleware().Completed(t.Context(), db.DB, keyOf(t, store, c.key), c.resp, c.xid)
		require.NoError(t, err)
		require.Equal(t, c.want, found, name)
	}
}
