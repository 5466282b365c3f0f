package oncetest_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/uow"
)

// The consumer of the service handles an event that another service has published.
func TestEventOfAnotherService(t *testing.T) {
	kit := newKit(t)
	require.NoError(t, kit.App.UoW.Do(t.Context(), func(_ context.Context, u *uow.Unit) error {
		return u.Add("order", OrderPlaced{"o-1"})
	}))
	kit.Drain()
	requireOneInvoice(t, kit)
}
