package command

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/events"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/status"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/stuck"
	"github.com/oncebox/oncebox/operator"
)

func TestTenantsArePausedAndResumed(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	pause := []string{"tenants", "pause", "acme", "--by", "ann", "--why", "their system is down"}
	require.Equal(t, cli.ExitRefused, s.oncebox(pause...).code)
	require.Equal(t, "The tenant acme is paused.\n", s.asked("y\n", pause...).out)
	again := s.oncebox(append(pause, "--yes")...)
	require.Equal(t, cli.ExitNothing, again.code)
	require.Contains(t, again.errs, "the tenant is paused already")

	s.placeFor("acme", "o-1")
	s.placeFor("small", "o-2")
	s.Drain()
	require.EqualValues(t, 1, s.billed.Load())
	tenants := document[[]events.TenantItem](t, s.oncebox("tenants", "list", "--json"))
	require.Len(t, tenants, 1)
	require.Equal(t, []any{"acme", "ann", "their system is down"}, []any{tenants[0].Tenant, tenants[0].Paused.By, tenants[0].Paused.Why})
	require.Regexp(t, `acme +0 +\S+Z +ann +their system is down`, s.oncebox("tenants", "list").out)
	require.Regexp(t, `paused +1 of 1 tenant`, s.oncebox("status").out)
	require.Regexp(t, `order +acme +0 +0 +0 +1\n`, s.oncebox("status").out)
	item := document[status.Item](t, s.oncebox("status", "--tenant", "acme", "--json"))
	require.Equal(t, []int64{0, 1, 1}, []int64{item.Outbox.Backlog, item.Outbox.Paused, int64(item.Outbox.TenantsPaused)})

	require.Empty(t, list[stuck.Item](t, s.oncebox("stuck", "--json")))
	for _, filter := range [][]string{nil, {"--tenant", "acme"}, {"--topic", "order"}} {
		noted := s.oncebox(append([]string{"stuck"}, filter...)...)
		require.Zero(t, noted.code)
		require.Regexp(t, `Nothing is stuck.\nPaused by an operator, so their events wait:\n  tenant acme since \S+Z by ann: their system is down; `+
			`to publish its events again: oncebox tenants resume acme --by "\$USER"\n$`, noted.out)
	}
	require.Equal(t, "Nothing is stuck.\n", s.oncebox("stuck", "--tenant", "small").out)
	var waiting string
	require.NoError(t, s.DB.QueryRowContext(t.Context(), "SELECT id FROM outbox_unsent").Scan(&waiting))
	require.Regexp(t, `now +outbox +tenant paused +by ann because their system is down`, s.oncebox("show", waiting).out)
	s.exec("UPDATE outbox_tenant SET paused_at = clock_timestamp() - interval '25 hours' WHERE paused_at IS NOT NULL")
	stuck := list[stuck.Item](t, s.oncebox("stuck", "--json"))
	require.Len(t, stuck, 1)
	require.Equal(t, `to publish its events again: oncebox tenants resume acme --by "$USER"`, stuck[0].Do)
	require.Contains(t, s.oncebox("stuck").out, "its events are not published")

	resume := []string{"tenants", "resume", "acme", "--by", "bob", "--yes", "--json"}
	require.Equal(t, events.TenantResult{Action: "resume", Tenant: "acme"}, document[events.TenantResult](t, s.oncebox(resume...)))
	require.Equal(t, cli.ExitNothing, s.oncebox(resume...).code)
	s.Drain()
	require.EqualValues(t, 2, s.billed.Load())
	s.countedSince()
	require.Equal(t, "Nothing is stuck.\n", s.oncebox("stuck").out)
	require.NotContains(t, s.oncebox("show", waiting).out, "paused")
	entries, err := s.App.Outbox.Audit(t.Context(), operator.AuditFilter{}, nil, 10)
	require.NoError(t, err)
	require.Equal(t, []string{"bob", "ann"}, []string{entries[0].Actor, entries[1].Actor})
	for _, args := range [][]string{
		{"pause", "acme", "--by", "ann"}, {"pause", "acme", "--why", "x"}, {"pause"}, {"resume", "acme"}, {"resume", "a", "b", "--by", "ann"},
	} {
		require.Equal(t, cli.ExitUsage, s.oncebox(append([]string{"tenants"}, args...)...).code, args)
	}
}
