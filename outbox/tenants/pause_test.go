package tenants_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox/state"
	"github.com/oncebox/oncebox/outbox/tenants"
)

func TestTenantsArePausedAndResumed(t *testing.T) {
	f := newFixture(t, nil)
	ctx := t.Context()
	f.flush("acme", 1)
	f.flush("small", 1)
	require.ErrorIs(t, f.Tenants().Resume(ctx, "acme", ann), tenants.ErrNotPaused)
	require.NoError(t, f.Tenants().Pause(ctx, "acme", operator.By{Actor: "ann", Reason: "night"}))
	require.ErrorIs(t, f.Tenants().Pause(ctx, "acme", operator.By{Actor: "bob", Reason: "also"}), tenants.ErrPaused)
	paused, err := f.Tenants().Paused(ctx)
	require.NoError(t, err)
	require.Len(t, paused, 1)
	require.Equal(t, []string{"acme", "ann", "night"}, []string{paused[0].Tenant, paused[0].Actor, paused[0].Reason})
	require.WithinDuration(t, time.Now(), paused[0].Since, time.Hour)
	require.Positive(t, paused[0].Age)

	var records []state.Record
	require.NoError(t, f.DB.NewSelect().Model(&records).Order("tenant_id").Scan(ctx))
	require.Equal(t, []bool{true, false}, []bool{records[0].Paused, records[1].Paused})

	require.NoError(t, f.Tenants().Resume(ctx, "acme", operator.By{Actor: "bob"}))
	require.ErrorIs(t, f.Tenants().Resume(ctx, "acme", operator.By{Actor: "bob"}), tenants.ErrNotPaused)
	paused, err = f.Tenants().Paused(ctx)
	require.NoError(t, err)
	require.Empty(t, paused)
	known, err := lanedb.Of(f.Handle()).Leases.Pauses(ctx)
	require.NoError(t, err)
	require.Len(t, known, 1)
	at := known[0].ResumedAt
	require.False(t, at.IsZero())
	for n, span := range [][2]time.Time{{at, at}, {at.Add(-time.Minute), at.Add(-time.Second)}, {at.Add(time.Second), at.Add(time.Minute)}} {
		resumed, err := f.Tenants().Resumed(ctx, span[0], span[1])
		require.NoError(t, err)
		require.Len(t, resumed, []int{1, 0, 0}[n])
	}

	require.NoError(t, f.Tenants().Pause(ctx, "acme", operator.By{Actor: "eve", Reason: "again"}), "a second time")
	resumed, err := f.Tenants().Resumed(ctx, at, at)
	require.NoError(t, err)
	require.Empty(t, resumed, "it is paused again")
	entries, err := f.Audit(ctx, operator.AuditFilter{}, nil, 10)
	require.NoError(t, err)
	var deeds [][]string
	for _, e := range entries {
		deeds = append(deeds, []string{e.TenantID, string(e.Action), e.Actor, e.Reason})
	}
	require.Equal(t, [][]string{{"acme", "pause", "eve", "again"}, {"acme", "resume", "bob", ""}, {"acme", "pause", "ann", "night"}}, deeds)
}

func TestPausesAreRefused(t *testing.T) {
	f := newFixture(t, nil)
	err := f.Tenants().Pause(t.Context(), "", operator.By{})
	for _, part := range []string{"tenant is empty", "By.Actor is empty", "By.Reason is empty"} {
		require.ErrorContains(t, err, part)
	}
	require.ErrorContains(t, f.Tenants().Pause(t.Context(), "a\nb", ann), "control character")
	require.ErrorContains(t, f.Tenants().Resume(t.Context(), "acme", operator.By{}), "By.Actor is empty")
	require.Zero(t, f.Count("outbox_tenant"))
	require.Zero(t, f.Count("oncebox_audit"))
}

// Relays read the pauses with each renewal. Of any number of tenants they read only the ones that were paused.
func TestPausesAreReadByTheirIndex(t *testing.T) {
	f := newFixture(t, nil)
	f.Exec("INSERT INTO outbox_tenant (tenant_id) SELECT 't' || n FROM generate_series(1, 5000) n")
	require.NoError(t, f.Tenants().Pause(t.Context(), "t7", operator.By{Actor: "ann", Reason: "night"}))
	f.Exec("ANALYZE outbox_tenant")
	for name, text := range map[string]string{
		"renewal": lanedb.Statements(true)["pauses"], "statistics": fmt.Sprintf(outboxdb.Statistics, outboxdb.FrontOfLane),
	} {
		plan := f.Explain(text)
		require.Contains(t, plan, "outbox_tenant_paused on outbox_tenant", name)
		require.NotContains(t, plan, "Seq Scan on outbox_tenant", name)
	}
}
