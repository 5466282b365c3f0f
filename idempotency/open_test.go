package idempotency_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/idempotency"
)

// A key is open from its claim until its answer, whether a request has it, gave it back, or died.
func TestOpenKeysAreListed(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	open := func(tenant string) []idempotency.Open {
		t.Helper()
		list, err := d.store.Open(t.Context(), d.db.DB, tenant, 10)
		require.NoError(t, err)
		return list
	}
	require.Empty(t, open(""))
	c := claim(t, d.store, d.db.DB, d.key)
	require.NoError(t, c.Run(t.Context(), func(ctx context.Context) error {
		_, err := idempotency.StepOnce(ctx, "pay", func(context.Context) (string, error) {
			list := open("")
			require.Len(t, list, 1)
			o := list[0]
			require.Equal(t, []any{false, 1, true, []string{"pay"}}, []any{o.Unknown, o.Epoch, o.Leased, o.Steps})
			require.False(t, o.LeaseUntil.IsZero())
			require.Len(t, o.Key, 64)
			return "paid", nil
		})
		return err
	}))
	require.Equal(t, []string{}, open("")[0].Steps, "it has an outcome")
	require.Empty(t, open("nobody"))
	require.Len(t, open(open("")[0].Tenant), 1)
	require.NoError(t, c.Release(t.Context()))
	free := open("")[0]
	require.Equal(t, []any{false, true}, []any{free.Leased, free.LeaseUntil.IsZero()})
	c = claim(t, d.store, d.db.DB, d.key)
	require.NoError(t, c.Complete(t.Context(), d.db.DB, idempotency.Response{Status: 200}))
	require.Empty(t, open(""), "it has an answer")
}

func TestOpenKeyOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.unknown("pay")
	_, _, err := d.store.Claim(t.Context(), d.db.DB, d.key, one)
	require.ErrorIs(t, err, idempotency.ErrStepUnknown)
	list, err := d.store.Open(t.Context(), d.db.DB, "", 10)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, []any{true, false, []string{"pay"}}, []any{list[0].Unknown, list[0].Leased, list[0].Steps})
}
