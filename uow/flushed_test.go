package uow_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/uow"
)

func TestTokenBeforeTheEnd(t *testing.T) {
	s := newService(t, nil)
	var early, late uow.Token
	require.NoError(t, s.units.Do(event.WithTenant(t.Context(), "acme"), func(ctx context.Context, u *uow.Unit) (err error) {
		u.Track(newAccount("a", "one", "two"))
		require.NoError(t, u.Add("reports", changed{"three"}))
		early, err = u.Token(ctx)
		require.NoError(t, err)
		require.Error(t, u.Add("reports", changed{"four"}))
		require.Panics(t, func() { u.Track(newAccount("b", "five")) })
		return nil
	}, uow.WithToken(&late)))
	require.Equal(t, early, late)
	require.ElementsMatch(t, []string{"account a v2 two", "reports three"}, s.named(t, early))
	require.Len(t, s.sunk(t), 3, "once")
}

func TestTokenBeforeAnAggregateRecordsMore(t *testing.T) {
	s := newService(t, nil)
	require.ErrorContains(t, s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		a := newAccount("a", "one")
		u.Track(a)
		if _, err := u.Token(ctx); err != nil {
			return err
		}
		a.Record(changed{"two"})
		return nil
	}), "account a recorded events later")
}

func TestTokenWithinAnotherUnit(t *testing.T) {
	s := newService(t, nil)
	require.ErrorContains(t, s.units.Do(t.Context(), func(ctx context.Context, _ *uow.Unit) error {
		return s.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
			_, err := u.Token(ctx)
			return err
		})
	}), "call Token on the outermost unit")
}
