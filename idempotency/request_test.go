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

// Method and path are known while the outcome of a step is open, and at no other time.
func TestRequestOfAnOpenStepIsKnown(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, 0)
	key, err := store.Key(idempotency.Scope{
		Tenant: "acme", Principal: "u1", Method: "POST", Path: "/tickets/7/charge?" + strings.Repeat("x", 300) + "\n", Key: "k",
	})
	require.NoError(t, err)
	stored := func() int { return count(t, db, "SELECT count(*) FROM idempotency_keys WHERE request IS NOT NULL") }
	claim := func() *idempotency.Claim {
		t.Helper()
		c, _, err := store.Claim(t.Context(), db.DB, key, idempotency.NewFingerprint("v1"))
		require.NoError(t, err)
		return c
	}
	once := func(ctx context.Context, err error) error {
		_, err = idempotency.StepOnce(ctx, "charge", func(context.Context) (string, error) { return "", err })
		return err
	}
	c := claim()
	require.Zero(t, stored(), "nothing is open")
	require.ErrorIs(t, c.Run(t.Context(), func(ctx context.Context) error { return once(ctx, errors.New("no answer")) }), idempotency.ErrStepUnknown)
	require.NoError(t, c.Release(t.Context()))
	list, err := store.Unknown(t.Context(), db.DB, "", 10)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.True(t, strings.HasPrefix(list[0].Request, "POST /tickets/7/charge?x"), list[0].Request)
	require.Len(t, list[0].Request, 255)
	open, err := store.Open(t.Context(), db.DB, "", 10)
	require.NoError(t, err)
	require.Equal(t, list[0].Request, open[0].Request)

	resolved, err := store.Resolve(t.Context(), db.DB, list[0], idempotency.StepNotDone())
	require.NoError(t, err)
	require.True(t, resolved)
	require.Zero(t, stored(), "it is known now")
	c = claim()
	require.NoError(t, c.Run(t.Context(), func(ctx context.Context) error { return once(ctx, nil) }))
	require.NoError(t, c.Complete(t.Context(), db.DB, idempotency.Response{Status: 201}))
	require.Zero(t, stored(), "it has its answer")
}
