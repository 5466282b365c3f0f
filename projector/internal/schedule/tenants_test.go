package schedule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// The lag of an event does not count for how long its tenant was paused.
func TestLagBeginsWhenTheTenantIsResumed(t *testing.T) {
	var tenants Tenants
	recorded, night := time.Now().Add(-8*time.Hour), time.Now()
	require.True(t, tenants.Set([]lanedb.Pause{{Tenant: "acme", ResumedAt: night}, {Tenant: "other"}}) && !tenants.Set([]lanedb.Pause{{Tenant: "other"}}))
	tenants.Set([]lanedb.Pause{{Tenant: "acme", ResumedAt: night}})
	row := outboxdb.Row{CreatedAt: recorded, Envelope: event.Envelope{TenantID: "acme"}}
	require.Equal(t, night, tenants.Due(&row))
	row.Delivery.NotBefore = night.Add(time.Minute)
	require.Equal(t, night.Add(time.Minute), tenants.Due(&row))
	row = outboxdb.Row{CreatedAt: recorded, Envelope: event.Envelope{TenantID: "small"}}
	require.Equal(t, recorded, tenants.Due(&row))
	row.CreatedAt = night.Add(time.Hour)
	require.Equal(t, night.Add(time.Hour), tenants.Due(&row))
}
