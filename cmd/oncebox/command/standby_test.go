package command

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/events"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxtest"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/projector"
	"github.com/oncebox/oncebox/telemetry"
)

// An operator sends long reports to a standby. Each view can be read there. Each command that only reads prints the
// same as on the primary, or the reason why it cannot.
func TestWhatReadsWorksOnAStandby(t *testing.T) {
	primary := pgtest.Start(t, nil)
	standby := primary.Standby(t)
	db := primary.Migrated(t)
	store := outbox.NewStore(db.DB, &outbox.Config{Source: "test"})
	ctx, by := t.Context(), operator.By{Actor: "ann", Reason: "imports"}
	add := func(name string, opts ...event.AddOption) (id string) {
		require.NoError(t, db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) (err error) {
			id, err = store.Add(ctx, tx, "order", []byte("{}"), append(opts, event.WithType(name), event.WithAggregate("order", name, 1))...)
			return err
		}))
		return id
	}
	broker := memory.New(nil)
	broker.Refuse(func(e event.Envelope) error {
		return map[string]error{"dead": messaging.Permanent(errors.New("never")), "held": errors.New("not now")}[e.Type]
	})
	dead := add("dead")
	add("held")
	add("sent")
	relay, err := projector.New(broker, &projector.Config{Telemetry: telemetry.Config{Logger: slog.New(slog.DiscardHandler)}}, store)
	require.NoError(t, err)
	require.NoError(t, relay.RunOnce(ctx))
	add("delayed", event.WithNotBefore(time.Now().Add(time.Hour)), event.WithOrderingKey("delayed")) // without a key its random id would choose the lane
	fresh := add("fresh")
	require.NoError(t, store.Tenants().Pause(ctx, "acme", by))
	outboxtest.Move(t, store, "globex", 1)
	_, err = lanedb.Of(store.Handle()).Leases.Claim(ctx, "me", 0, 64, time.Hour)
	require.NoError(t, err)
	_, err = db.Exec("INSERT INTO outbox_claim (lane, upto) SELECT lane, max(seq) FROM outbox GROUP BY lane")
	require.NoError(t, err)

	replica := standby.Reader(t, db)
	await.True(t, func() bool {
		n, err := replica.NewSelect().Table("outbox_lane").Where("owner = 'me'").Count(ctx)
		return err == nil && n == 64
	}, "the standby has what the primary has")

	statuses := func(db *bun.DB) (list []string) {
		require.NoError(t, db.NewRaw("SELECT event_type || ' ' || status FROM outbox_messages ORDER BY 1").Scan(ctx, &list))
		return list
	}
	require.Contains(t, statuses(db.DB), "fresh PUBLISHING")
	require.Equal(t, []string{"dead DEAD", "delayed NEW", "fresh NEW", "held FAILED", "sent SENT"}, statuses(replica), "who publishes what is not known there")
	var views []string
	require.NoError(t, replica.NewRaw("SELECT relname FROM pg_class WHERE relnamespace = ?::regnamespace AND relkind = 'v'", db.Schema).Scan(ctx, &views))
	require.Greater(t, len(views), 4)
	for _, view := range views {
		_, err := replica.Exec("SELECT * FROM " + view)
		require.NoError(t, err, view)
	}

	on := func(url string, args ...string) answer {
		return command(t, &cli.Terminal{}, append([]string{"--database-url", url, "--schema", db.Schema}, args...)...)
	}
	when := regexp.MustCompile(`\d+(\.\d+)?(ms|s)\b|-?\d+\.\d+|until \S+`)
	for _, line := range []string{
		"status", "status --json", "stuck", "show " + dead, "show " + fresh, "dead list", "dead show " + dead, "delayed list",
		"keys list", "tenants list", "migrate status", "migrate verify", "grants reader --to bi",
	} {
		want, got := on(primary.URL, strings.Fields(line)...), on(standby.URL, strings.Fields(line)...)
		require.NotEqual(t, cli.ExitUsage, want.code, "%s: %s", line, want.errs)
		require.Equal(t, when.ReplaceAllString(want.out+want.errs, ""), when.ReplaceAllString(got.out+got.errs, ""), line)
		require.Equal(t, want.code, got.code, line)
	}
	lanes := list[events.LaneItem](t, on(standby.URL, "lanes", "--waiting", "--json"))
	require.Len(t, lanes, 3)
	for n := range lanes {
		require.Zero(t, lanes[n].Claimed)
	}
	require.Contains(t, on(standby.URL, "doctor").out, "the server is a standby, which takes no writes")
	for _, line := range []string{"reconcile --dry-run", "dead replay " + dead + " --by ann --yes", "tenants pause acme --by ann --why imports --yes"} {
		require.Contains(t, on(standby.URL, strings.Fields(line)...).errs, "this is a standby", line)
	}
}
