package idempotency_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// The service's description of a step and of the sender is known while the outcome is open, and at no other time. The
// principal is never known.
func TestOpenStepIsRecognised(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, 0)
	scope := idempotency.Scope{Tenant: "acme", Principal: "secret-principal", Caller: "ann\n", Method: "POST", Path: "/pay", Key: "k"}
	key, err := store.Key(scope)
	require.NoError(t, err)
	unnamed := scope
	unnamed.Caller = ""
	same, err := store.Key(unnamed)
	require.NoError(t, err)
	require.Equal(t, key.String(), same.String(), "the caller is no part of the key")
	stored := func() (n int) {
		n = count(t, db, "SELECT count(*) FROM idempotency_keys WHERE caller IS NOT NULL")
		return n + count(t, db, "SELECT count(*) FROM idempotency_step WHERE label IS NOT NULL")
	}
	once := func(ctx context.Context, name, label string, err error) error {
		_, err = idempotency.StepOnce(idempotency.WithLabel(ctx, label), name, func(context.Context) (string, error) { return "", err })
		return err
	}
	c, _, err := store.Claim(t.Context(), db.DB, key, idempotency.NewFingerprint("v1"))
	require.NoError(t, err)
	require.Zero(t, stored(), "nothing is open")
	require.NoError(t, c.Run(t.Context(), func(ctx context.Context) error {
		return errors.Join(
			once(ctx, "reserve", "seat 7", nil),
			once(ctx, "refuse", "seat 8", nil), func() error {
				err := once(ctx, "hold", "seat 9", idempotency.ErrNotDone)
				require.ErrorIs(t, err, idempotency.ErrNotDone)
				return nil
			}())
	}))
	require.Zero(t, stored(), "what became of them is known")
	require.ErrorIs(t, c.Run(t.Context(), func(ctx context.Context) error {
		require.ErrorIs(t, once(ctx, "plain", "", errors.New("no answer")), idempotency.ErrStepUnknown)
		return once(ctx, "charge", "order o-7\n"+strings.Repeat("x", 300), errors.New("no answer"))
	}), idempotency.ErrStepUnknown)
	require.NoError(t, c.Release(t.Context()))

	list, err := store.Unknown(t.Context(), db.DB, "", 10)
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, []string{"plain", ""}, []string{list[0].Step, list[0].Label})
	require.True(t, strings.HasPrefix(list[1].Label, "order o-7\uFFFDxxx"), list[1].Label)
	require.Equal(t, "ann\uFFFD", list[1].Caller)
	require.Regexp(t, "^[0-9a-f]{16}$", list[1].Principal)
	open, err := store.Open(t.Context(), db.DB, "", 10)
	require.NoError(t, err)
	require.Equal(t, []string{"plain", "charge"}, open[0].Steps)
	require.Equal(t, []string{"", list[1].Label}, open[0].Labels)
	require.Equal(t, []string{list[1].Caller, list[1].Principal}, []string{open[0].Caller, open[0].Principal})
	require.Zero(t, count(t, db, "SELECT count(*) FROM idempotency_keys k WHERE to_json(k)::text LIKE '%secret-principal%'"))

	for n, outcome := range []idempotency.Outcome{idempotency.StepNotDone(), idempotency.StepDone("x")} {
		resolved, err := store.Resolve(t.Context(), db.DB, list[n], outcome)
		require.NoError(t, err)
		require.True(t, resolved)
	}
	require.Zero(t, stored(), "it is known now")
}

// All keys of one principal are listed with the same hash of it, and keys without a principal with none.
func TestKeysOfOnePrincipalAreSeenAsSuch(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, 0)
	of := func(key, principal string) string {
		t.Helper()
		scope := idempotency.Scope{Tenant: "acme", Principal: principal, Anonymous: principal == "", Key: key}
		hashed, err := store.Key(scope)
		require.NoError(t, err)
		_, _, err = store.Claim(t.Context(), db.DB, hashed, idempotency.NewFingerprint("v1"))
		require.NoError(t, err)
		list, err := store.Open(t.Context(), db.DB, "", 10)
		require.NoError(t, err)
		for _, o := range list {
			if strings.HasPrefix(o.Key, hashed.String()) {
				require.Empty(t, o.Labels)
				require.Empty(t, o.Caller)
				return o.Principal
			}
		}
		t.Fatal("the key is not listed")
		return ""
	}
	ann := of("a", "ann")
	require.Equal(t, ann, of("b", "ann"))
	require.NotEqual(t, ann, of("c", "bob"))
	require.Empty(t, of("d", ""))
}
