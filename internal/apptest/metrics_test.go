package apptest_test

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/apptest"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/metricstest/service"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/promtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/uow"
)

// What docs/metrics.md lists is what a running service shows to Prometheus, nothing more and nothing less. Rules and dashboard ask for nothing
// else, and by no label that is not there; and the dashboard shows all of it. Each histogram shows a load as it was.
func TestMetricsAreThoseOfARunningService(t *testing.T) {
	documented := promtest.Documented(t, "../../docs/metrics.md")
	running := service.Run(t, documented)
	shown := promtest.Gather(t, running.Registry)
	require.ElementsMatch(t, documented, slices.Collect(maps.Keys(shown)))
	dashboard := ""
	for path, exprs := range expressions(t) {
		require.NotEmpty(t, exprs, path)
		for _, expr := range exprs {
			requireShown(t, shown, path, expr)
		}
		if path == "../../docs/alerts/oncebox-dashboard.json" {
			dashboard = strings.Join(exprs, "\n")
		}
	}
	unseen := map[string]bool{"oncebox_outbox_died": true, "oncebox_idempotency_purged": true} // their gauges are there
	for name := range shown {
		require.Equal(t, !unseen[name], regexp.MustCompile(name+`(_total|_seconds)?(_bucket)?\{`).MatchString(dashboard), "the dashboard and %s", name)
	}
	requireFineBounds(t, running, shown)
}

// requireFineBounds: the quantile of a load that takes equally long is read between two bounds of a histogram, and is near to the truth only if these are.
// The default bounds of OpenTelemetry begin at 0, 5 and 10, and are meant for milliseconds: a handler that takes 9 ms is shown with 4.75 s.
func requireFineBounds(t *testing.T, running *service.Service, shown map[string]promtest.Family) {
	t.Helper()
	require.Subset(t, slices.Collect(maps.Keys(shown)), append(running.Seconds(), running.Counts()...))
	read := func(name string, value, within float64) {
		p95 := promtest.Quantile(t, running.Registry, name, fmt.Sprint(value), 0.95)
		require.Greater(t, p95, value/within, "%s of %v", name, value)
		require.Less(t, p95, value*within, "%s of %v", name, value)
	}
	for _, value := range []float64{.002, .009, .04, .15, .8, 3, 8, 25} {
		running.Load(t.Context(), fmt.Sprint(value), slices.Repeat([]float64{value}, 100), nil)
		for _, name := range running.Seconds() {
			read(name, value, 3)
		}
	}
	for _, value := range []int64{2, 3, 5, 8, 15} {
		running.Load(t.Context(), fmt.Sprint(value), nil, slices.Repeat([]int64{value}, 100))
		for _, name := range running.Counts() {
			read(name, float64(value), 2)
		}
	}
}

// A counter shows 0 before the first time, with each label whose values are known: increase() does not see a first time that is the first value.
// Those by topic or tenant cannot.
func TestCountersBeginAtZero(t *testing.T) {
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	require.NoError(t, err)
	cfg := apptest.Config()
	cfg.Telemetry.MeterProvider = metric.NewMeterProvider(metric.WithReader(reader))
	cfg.Outbox.OnDead = func(context.Context, bun.Tx, outbox.DeadLetter) error { return nil }
	cfg.Inbox.OnDead = func(context.Context, *uow.Unit, inbox.DeadLetter) error { return nil }
	cfg.Outbox.BeforeDrop = func(context.Context, outbox.Partition) error { return nil }
	db := pgtest.Migrated(t)
	app, err := oncebox.New(db.DB, memory.New(nil), cfg)
	require.NoError(t, err)
	app.Consume("order", "billing", messaging.NewRouter(app.Registry))
	apptest.Run(t, app)
	want := map[string]string{
		"oncebox_uow_units": "outcome=rolled_back", "oncebox_uow_retries": "", "oncebox_outbox_published": "", "oncebox_outbox_unconfirmed": "",
		"oncebox_outbox_fenced": "", "oncebox_outbox_unannounced": "", "oncebox_outbox_reconciled": "kind=lanes", "oncebox_outbox_partitions_kept": "",
		"oncebox_inbox_messages": "outcome=dead", "oncebox_inbox_unannounced": "consumer=billing", "oncebox_idempotency_purged": "",
	}
	for name, label := range want {
		await.True(t, func() bool {
			is := promtest.Gather(t, registry)[name]
			return is.Series != nil && (label == "" || is.Labels[label])
		}, "%s shows %s", name, label)
	}
	shown := promtest.Gather(t, registry)
	for name := range want {
		if name != "oncebox_uow_units" {
			require.Zero(t, shown[name].Counted, name)
		}
	}
}
