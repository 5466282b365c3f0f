package outboxtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/outbox/tenants"
)

// Move moves a tenant without unpublished events to the lanes of a group. A move gives way after a second, which may pass because the machine stands
// still, so it is tried again. Dead letters do not end by themselves: they fail the test at once.
func Move(t *testing.T, store *outbox.Store, tenant string, group int16) {
	t.Helper()
	await.Nil(t, func() error {
		err := store.Tenants().Move(t.Context(), tenant, group, Ann())
		if err != nil {
			require.ErrorIs(t, err, tenants.ErrBusy)
			require.NotContains(t, err.Error(), "dead letters")
		}
		return err
	}, "tenant %s is moved", tenant)
}
