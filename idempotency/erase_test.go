package idempotency_test

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// The keys of an erased principal stay, so that nothing is done again. None of its answers stay.
func TestErase(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, 0)
	scopes := map[string]idempotency.Scope{
		"one":              {Tenant: "acme", Principal: "u1", Key: "1"},
		"another":          {Tenant: "acme", Principal: "u1", Path: "/refunds", Key: "2"},
		"under a lease":    {Tenant: "acme", Principal: "u1", Key: "3"},
		"being worked on":  {Tenant: "acme", Principal: "u1", Key: "4"},
		"other principal":  {Tenant: "acme", Principal: "u2", Key: "1"},
		"other tenant":     {Tenant: "bolt", Principal: "u1", Key: "1"},
		"of the default":   {Principal: "u1", Key: "1"},
		"anonymous":        {Tenant: "acme", Anonymous: true, Key: "1"},
		"anonymous of all": {Anonymous: true, Key: "1"},
	}
	erased := map[string]bool{"one": true, "another": true, "under a lease": true}
	answer := idempotency.Response{Status: 201, Header: map[string][]string{"Location": {"/payments/1"}}, Body: []byte("secret")}
	keys := map[string]idempotency.Key{}
	for name, scope := range scopes {
		key, err := store.Key(scope)
		require.NoError(t, err)
		keys[name] = key
		switch name {
		case "under a lease", "being worked on":
			claim, _, err := store.Claim(t.Context(), db.DB, key, one)
			require.NoError(t, err)
			if name == "under a lease" {
				require.NoError(t, claim.Complete(t.Context(), db.DB, answer))
			}
		default:
			complete(t, store, db.DB, key, answer)
		}
		if name != "being worked on" {
			require.Equal(t, &answer, found(t, store, db.DB, key)) // and has it in memory
		}
	}

	n, err := store.Erase(t.Context(), db.DB, "acme", "u1")
	require.NoError(t, err)
	require.EqualValues(t, 3, n)
	for name, key := range keys {
		if name == "being worked on" {
			_, err := store.Lookup(t.Context(), db.DB, key, one)
			require.ErrorIs(t, err, idempotency.ErrInProgress)
			continue
		}
		want := &answer
		if erased[name] {
			want = &idempotency.Response{Status: 201, Header: map[string][]string{}, Omitted: idempotency.OmittedErased}
		}
		require.Equal(t, want, found(t, store, db.DB, key), name)
	}
	require.NoError(t, transact(t, db.DB, func(tx bun.IDB) error {
		stored, err := store.Begin(t.Context(), tx, keys["one"], one)
		require.NotNil(t, stored, "the request is not to be executed again")
		return err
	}))
	n, err = store.Erase(t.Context(), db.DB, "acme", "u1")
	require.NoError(t, err)
	require.Zero(t, n, "there is nothing left")
	n, err = store.Erase(t.Context(), db.DB, "", "u1")
	require.NoError(t, err)
	require.EqualValues(t, 1, n, "of the default tenant")
	_, err = store.Erase(t.Context(), db.DB, "acme", "")
	require.ErrorContains(t, err, "the principal is empty")
}

// The next version of this package has to find what this one has stored.
func TestEraseFindsRowsOfEarlierVersions(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, 0)
	complete(t, store, db.DB, keyOf(t, store, "k"), idempotency.Response{Status: 201})
	var hash []byte
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT principal_hash FROM idempotency_keys").Scan(&hash))
	require.Equal(t, "4f12ff388af719aea00165537ab8f046", hex.EncodeToString(hash))
}
