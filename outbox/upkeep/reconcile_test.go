package upkeep_test

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/outbox/upkeep"
	"github.com/oncebox/oncebox/telemetry"
)

// reconcile does a dry run and then repairs. Both must find the same, so the dry run has changed nothing.
func (f *fixture) reconcile() upkeep.Reconciled {
	f.T.Helper()
	would, err := f.Upkeep().ReconcileDryRun(f.T.Context())
	require.NoError(f.T, err)
	found, err := f.Upkeep().Reconcile(f.T.Context())
	require.NoError(f.T, err)
	require.Equal(f.T, found, would)
	return found
}

func TestReconcileEntersLanes(t *testing.T) {
	f := newFixture(t, nil)
	require.NoError(t, f.Upkeep().EnsurePartitions(t.Context()))
	f.Record("a", "a1")
	before := f.Leases[f.Fetch()[0].Lane]
	f.Exec("DELETE FROM outbox_lane WHERE lane IN (?, 5, 6)", before.Lane)
	f.Record("b", "b1")
	f.Exec("UPDATE outbox SET lane = 130 WHERE event_type = 'b1'")
	f.RecordUnordered("c1", event.WithNotBefore(time.Now().Add(time.Hour)))
	f.Exec("WITH gone AS (DELETE FROM outbox WHERE event_type = 'c1' RETURNING *) INSERT INTO outbox_held SELECT *, not_before FROM gone")
	f.Exec("UPDATE outbox_held SET lane = 200")
	require.Equal(t, upkeep.Reconciled{Lanes: 5}, f.reconcile())
	require.Equal(t, 64, f.Count("outbox_lane WHERE grp = 0 AND lane < 64"))
	require.Equal(t, 1, f.Count("outbox_lane WHERE grp = 2 AND lane = 130"))
	require.Equal(t, 1, f.Count("outbox_lane WHERE grp = 3 AND lane = 200"))
	leases, err := lanedb.Of(f.Handle()).Leases.Claim(t.Context(), "me", 0, 64, time.Minute)
	require.NoError(t, err)
	require.Len(t, leases, 3)
	for _, l := range leases {
		require.Greater(t, l.Epoch, before.Epoch+1_000_000, "what was written under the lost entry is fenced")
	}
}

func TestReconcileEndsLeasesThatAClockMadeLong(t *testing.T) {
	f := newFixture(t, nil)
	require.NoError(t, f.Upkeep().EnsurePartitions(t.Context()))
	f.Exec("UPDATE outbox_lane SET lease_until = now() + interval '2 days' WHERE lane < 3")
	_, err := lanedb.Of(f.Handle()).Leases.Heartbeat(t.Context(), "gone", 0, time.Minute)
	require.NoError(t, err)
	f.Exec("UPDATE outbox_projector SET seen_until = now() + interval '2 days'")
	_, err = lanedb.Of(f.Handle()).Leases.Heartbeat(t.Context(), "me", 0, time.Minute)
	require.NoError(t, err)
	require.Equal(t, upkeep.Reconciled{Leases: 4}, f.reconcile())
	require.Equal(t, 64, f.Count("outbox_lane WHERE lease_until < now() + interval '31 minutes'"), "what their owners have leased for")
	require.Equal(t, 2, f.Count("outbox_projector WHERE seen_until < now() + interval '61 seconds'"))
}

func TestReconcileMakesPartitions(t *testing.T) {
	f := newFixture(t, nil)
	require.Zero(t, f.reconcile())
	tomorrow := time.Now().UTC().AddDate(0, 0, 1).Format("20060102")
	for _, table := range []string{"outbox", "outbox_progress", "outbox_sent"} {
		f.Exec("DROP TABLE " + table + "_" + tomorrow)
		require.Equal(t, upkeep.Reconciled{Partitions: 1}, f.reconcile(), table)
	}
	none := outbox.NewStore(f.DB.DB, &outbox.Config{Retention: outbox.NoRetention})
	require.NoError(t, none.Upkeep().SetRetention(t.Context(), operator.By{Actor: "ann", Reason: "nobody reads them"}))
	f.Exec("SELECT 1; DROP TABLE outbox_" + tomorrow)
	found, err := none.Upkeep().Reconcile(t.Context())
	require.NoError(t, err)
	require.Equal(t, upkeep.Reconciled{Partitions: 1}, found, "what waits is partitioned too")
}

func TestReconcileTells(t *testing.T) {
	var log bytes.Buffer
	reader := sdkmetric.NewManualReader()
	f := newFixture(t, &outbox.Config{
		Telemetry: telemetry.Config{Logger: slog.New(slog.NewTextHandler(&log, nil)), MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))},
	})
	require.NoError(t, f.Upkeep().EnsurePartitions(t.Context()))
	require.Zero(t, f.reconcile())
	require.Empty(t, log.String())
	woken := 0
	f.Handle().OnWake(func(outboxdb.LaneSet) { woken++ })
	f.Exec("DELETE FROM outbox_lane WHERE lane < 2")
	require.EqualValues(t, 2, f.reconcile().Total())
	require.Contains(t, log.String(), "level=WARN")
	require.Contains(t, log.String(), "lanes=2")
	require.Equal(t, 1, woken)
	var rm metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &rm))
	sum, ok := rm.ScopeMetrics[0].Metrics[0].Data.(metricdata.Sum[int64])
	require.True(t, ok)
	require.Equal(t, "oncebox.outbox.reconciled", rm.ScopeMetrics[0].Metrics[0].Name)
	kinds := map[string]int64{}
	for _, p := range sum.DataPoints {
		kind, _ := p.Attributes.Value("kind")
		kinds[kind.AsString()] = p.Value
	}
	require.Equal(t, map[string]int64{"lanes": 2, "leases": 0, "partitions": 0}, kinds)
}
