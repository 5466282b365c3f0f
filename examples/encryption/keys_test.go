package encryption

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgtest"
)

func newVault(t *testing.T) *pgtest.DB {
	t.Helper()
	db := pgtest.Open(t)
	_, err := db.ExecContext(t.Context(), Schema)
	require.NoError(t, err)
	return db
}

func keyOf(t *testing.T, k *Keys, tenant string) string {
	t.Helper()
	found, err := k.current(t.Context(), tenant)
	require.NoError(t, err)
	return found.id
}

func TestOtherProcessesFollowWithinTheLifetime(t *testing.T) {
	db := newVault(t)
	here, there := NewKeys(db.DB), NewKeys(db.DB)
	now := time.Now()
	there.now = func() time.Time { return now }
	require.Equal(t, "acme/1", keyOf(t, there, "acme"))

	require.NoError(t, here.Rotate(t.Context(), "acme"))
	require.Equal(t, "acme/2", keyOf(t, here, "acme"))
	require.Equal(t, "acme/1", keyOf(t, there, "acme"))
	now = now.Add(Lifetime + 1)
	require.Equal(t, "acme/2", keyOf(t, there, "acme"))

	require.NoError(t, here.Erase(t.Context(), "acme"))
	require.Equal(t, "acme/2", keyOf(t, there, "acme"))
	now = now.Add(Lifetime + 1)
	_, err := there.current(t.Context(), "acme")
	require.ErrorIs(t, err, event.ErrErased)
}

func TestRotateLeavesTenantsWithoutKeysAlone(t *testing.T) {
	k := NewKeys(newVault(t).DB)
	require.NoError(t, k.Rotate(t.Context(), "acme"))
	require.Equal(t, "acme/1", keyOf(t, k, "acme"))
}

// However rotations, first events and an erasure fall together, no key is left of the tenant.
func TestNoKeyIsMadeBehindAnErasure(t *testing.T) {
	db := newVault(t)
	for round := range 20 {
		tenant := fmt.Sprintf("tenant%d", round)
		if round%2 == 0 {
			keyOf(t, NewKeys(db.DB), tenant)
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { _, _ = NewKeys(db.DB).current(t.Context(), tenant) })
			wg.Go(func() { _ = NewKeys(db.DB).Rotate(t.Context(), tenant) })
		}
		wg.Go(func() {
			if err := NewKeys(db.DB).Erase(t.Context(), tenant); err != nil {
				t.Errorf("erase: %v", err)
			}
		})
		wg.Wait()
		var left int
		require.NoError(t, db.NewRaw("SELECT count(*) FROM event_key WHERE tenant_id = ? AND secret IS NOT NULL", tenant).Scan(t.Context(), &left))
		require.Zero(t, left, tenant)
	}
}
