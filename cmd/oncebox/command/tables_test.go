package command

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/consumers"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/events"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/keys"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/inbox/readmodel"
	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox/published"
	"github.com/oncebox/oncebox/uow"
)

func (s *shop) exec(statement string, args ...any) {
	s.t.Helper()
	_, err := s.DB.ExecContext(s.t.Context(), statement, args...)
	require.NoError(s.t, err)
}

func TestLanesAreListed(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.place("a")
	s.exec("UPDATE outbox SET created_at = created_at - interval '3 days'")
	_, err := lanedb.Of(s.App.Outbox.Handle()).Leases.Claim(t.Context(), "me\x1b[31m", 0, 60, time.Hour)
	require.NoError(t, err)
	s.exec("UPDATE outbox_lane SET lease_until = clock_timestamp() - interval '1 minute' WHERE lane = (SELECT lane FROM outbox)")

	all := document[[]events.LaneItem](t, s.oncebox("lanes", "--json"))
	require.Len(t, all, 64)
	waiting := document[[]events.LaneItem](t, s.oncebox("lanes", "--waiting", "--json"))
	require.Len(t, waiting, 1)
	require.Equal(t, []any{int64(1), false}, []any{waiting[0].New, waiting[0].Leased})
	require.Greater(t, waiting[0].AgeSeconds, 250_000.0)
	free := document[[]events.LaneItem](t, s.oncebox("lanes", "--free", "--json"))
	require.GreaterOrEqual(t, len(free), 4)
	require.Less(t, len(free), 6)
	text := s.oncebox("lanes").out
	for _, part := range []string{"LANE", "3 days", "me\uFFFD[31m", "until 20", "free"} {
		require.Contains(t, text, part)
	}
	require.NotContains(t, text, "\x1b")
	s.exec("DELETE FROM outbox")
	require.Contains(t, s.oncebox("lanes", "--waiting").errs, "No lane matches.")
	require.Equal(t, "[]\n", s.oncebox("lanes", "--waiting", "--json").out)
}

func TestNumbersAndAges(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"999", "1000+"}, []string{cli.UpTo(999, 1000), cli.UpTo(1000, 1000)})
	require.Equal(t, []string{"-", "1.3s", "1h0m1s", "2 days"}, []string{cli.Age(0), cli.Age(1.26), cli.Age(3600.7), cli.Age(48 * 3600)})
}

func TestKeysWithoutAnswerAreListed(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	require.Contains(t, s.oncebox("keys", "list").errs, "Every key has an answer: no request is open.")
	s.unknownStep()
	scope := idempotency.Anonymous("acme")
	scope.Method, scope.Path, scope.Key = "POST", "/orders", "k2"
	key, err := s.App.Idempotency.Key(scope)
	require.NoError(t, err)
	claim, _, err := s.App.Idempotency.Claim(t.Context(), s.DB, key, idempotency.NewFingerprint("v1"))
	require.NoError(t, err)

	list := document[[]keys.Item](t, s.oncebox("keys", "list", "--json"))
	require.Len(t, list, 2)
	require.Equal(t, []any{keys.Unknown, "default", []string{"charge"}}, []any{list[0].State, list[0].Tenant, list[0].Steps})
	require.Equal(t, "POST /orders", list[0].Request)
	require.Contains(t, s.oncebox("keys", "list").out, "POST /orders")
	require.Equal(t, "POST /orders", s.stuck()["step unknown"].Request)
	require.Contains(t, s.oncebox("stuck").out, "POST /orders")
	require.Equal(t, []any{keys.WorkedOn, "acme", []string{}}, []any{list[1].State, list[1].Tenant, list[1].Steps})
	require.NotNil(t, list[1].LeaseUntil)
	require.NoError(t, claim.Release(t.Context()))
	freed := document[[]keys.Item](t, s.oncebox("keys", "list", "--tenant", "acme", "--json"))
	require.Len(t, freed, 1)
	require.Equal(t, keys.Free, freed[0].State)
	first := s.oncebox("keys", "list", "--limit", "1")
	require.Contains(t, first.out, "charge")
	require.Contains(t, first.errs, "There are more")
	require.Equal(t, cli.ExitUsage, s.oncebox("keys", "list", "--limit", "0").code)
}

func TestTenantsAreListedAndMoved(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	require.Contains(t, s.oncebox("tenants", "list").errs, "All tenants are in group 0.")
	move := []string{"tenants", "move", "acme", "1", "--by", "ann", "--why", "imports"}
	require.Equal(t, cli.ExitRefused, s.oncebox(move...).code)
	require.Equal(t, "The tenant acme is in group 1.\n", s.asked("y\n", move...).out)
	list := document[[]events.TenantItem](t, s.oncebox("tenants", "list", "--json"))
	require.Len(t, list, 1)
	require.Equal(t, []any{"acme", int16(1)}, []any{list[0].Tenant, list[0].Group})
	require.Contains(t, s.oncebox("tenants", "list").out, "acme")
	entries, err := s.App.Outbox.Audit(t.Context(), operator.AuditFilter{}, nil, 10)
	require.NoError(t, err)
	require.Equal(t, "ann", entries[0].Actor)
	for _, args := range [][]string{{"acme", "1"}, {"acme", "one", "--by", "ann"}, {"acme", "-1", "--by", "ann"}, {"acme", "--by", "ann"}} {
		require.Equal(t, cli.ExitUsage, s.oncebox(append([]string{"tenants", "move"}, args...)...).code, args)
	}
}

func TestRetentionRuns(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.unknownStep()
	s.exec("UPDATE idempotency_keys SET state = 'claimed', expires_at = clock_timestamp() - interval '1 hour'")
	dry := s.oncebox("retention", "run", "--dry-run")
	require.Contains(t, dry.out, "Nothing was removed: published events are kept for ")
	require.Contains(t, dry.out, "dead letters of the outbox are kept for ever")
	require.Equal(t, cli.ExitRefused, s.oncebox("retention", "run").code)
	require.Equal(t, cli.ExitRefused, s.asked("n\n", "retention", "run").code)
	would := document[retentionResult](t, s.oncebox("retention", "run", "--dry-run", "--json"))
	require.True(t, would.DryRun)
	require.Positive(t, would.PublishedSeconds)
	require.Positive(t, would.HandledSeconds)
	done := document[retentionResult](t, s.oncebox("retention", "run", "--yes", "--json"))
	require.EqualValues(t, 1, done.KeysRemoved)
	require.Contains(t, s.asked("y\n", "retention", "run").out, "0 idempotency keys had expired")
}

func TestReconcileRepairs(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	require.NoError(t, s.App.Outbox.Upkeep().EnsurePartitions(t.Context()))
	require.Equal(t, answer{out: "Nothing was wrong.\n"}, s.oncebox("reconcile"))
	s.exec("DELETE FROM outbox_lane WHERE lane < 3")
	dry := s.oncebox("reconcile", "--dry-run")
	require.Equal(t, cli.ExitFindings, dry.code)
	require.Contains(t, dry.out, "lanes that no relay could take  3")
	require.Contains(t, dry.errs, "3 things are wrong; nothing was repaired")
	require.Contains(t, s.oncebox("reconcile", "--dry-run", "--json").out, `"dry_run": true`)
	a := s.oncebox("reconcile")
	require.Equal(t, cli.ExitFindings, a.code)
	require.Contains(t, a.out, "lanes that no relay could take  3")
	s.exec("DELETE FROM outbox_lane WHERE lane < 3")
	a = s.oncebox("reconcile", "--json")
	require.Equal(t, cli.ExitFindings, a.code)
	require.Contains(t, a.out, `"lanes": 3`)
	require.Contains(t, s.oncebox("reconcile", "--json").out, `"repaired": 0`)
}

func TestRebuildsAreShown(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	require.Contains(t, s.oncebox("rebuild", "status").errs, "There is no read model.")
	balances := readmodel.New(s.App.Inbox, "balances", messaging.HandlerFunc(func(context.Context, *messaging.Message) error { return nil }))
	empty := func(context.Context, *uow.Unit) error { return nil }
	stop := errors.New("stop")
	history := func(context.Context, string, func(context.Context, []event.Envelope, string) error) error {
		running := document[[]consumers.ModelItem](t, s.oncebox("rebuild", "status", "--json"))
		require.Equal(t, consumers.ModelRebuilding, running[0].State)
		return stop
	}
	require.ErrorIs(t, balances.Rebuild(t.Context(), empty, history, nil), stop)
	a := s.oncebox("rebuild", "status", "balances")
	require.Equal(t, cli.ExitFindings, a.code)
	require.Contains(t, a.out, consumers.ModelInterrupted)
	require.Contains(t, a.errs, "Model.Resume")
	require.NoError(t, balances.Resume(t.Context(), s.App.Outbox.Published().History(published.Filter{Topic: "order"}), nil))
	require.Equal(t, consumers.ModelLive, document[[]consumers.ModelItem](t, s.oncebox("rebuild", "status", "--json"))[0].State)
	require.Equal(t, cli.ExitNothing, s.oncebox("rebuild", "status", "totals").code)
}
