package oncebox_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"go.opentelemetry.io/otel"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/messaging/pulsar"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/uow"
)

// What docs/metrics.md lists is what a running service shows to Prometheus, nothing more and nothing less. Rules and dashboard ask for nothing
// else, and by no label that is not there; and the dashboard shows all of it.
func TestMetricsAreThoseOfARunningService(t *testing.T) {
	shown := scrape(t)
	require.ElementsMatch(t, documented(t), slices.Collect(maps.Keys(shown)))
	for name, is := range shown {
		requireFineBounds(t, name, is)
	}
	dashboard := ""
	for path, exprs := range expressions(t) {
		require.NotEmpty(t, exprs, path)
		for _, expr := range exprs {
			requireShown(t, shown, path, expr)
		}
		if path == "docs/alerts/oncebox-dashboard.json" {
			dashboard = strings.Join(exprs, "\n")
		}
	}
	unseen := map[string]bool{"oncebox_outbox_died": true, "oncebox_idempotency_purged": true} // their gauges are there
	for name := range shown {
		require.Equal(t, !unseen[name], regexp.MustCompile(name+`(_total|_seconds)?(_bucket)?\{`).MatchString(dashboard), "the dashboard and %s", name)
	}
}

// family is a metric as Prometheus sees it: the names of its series, and their labels, alone and with each value.
type family struct {
	series, labels map[string]bool
	counted        float64 // by a counter or a histogram, over all labels
}

// requireFineBounds: a p95 is read between two bounds of a histogram. The default ones of OpenTelemetry begin at 0, 5 and 10, and are meant for
// milliseconds: a handler that takes 9 ms is shown with 4.75 s.
func requireFineBounds(t *testing.T, name string, is family) {
	t.Helper()
	switch {
	case is.series[name+"_seconds_bucket"]:
		for _, bound := range []string{"0.005", "0.01", "0.1", "1", "10", "30"} {
			require.Contains(t, is.labels, "le="+bound, name)
		}
	case is.series[name+"_bucket"]:
		require.Contains(t, is.labels, "le=2", name)
		require.NotContains(t, is.labels, "le=10000", name)
	}
}

// documented returns the metrics of docs/metrics.md with underscores for dots.
func documented(t *testing.T) (names []string) {
	t.Helper()
	page, err := os.ReadFile("docs/metrics.md")
	require.NoError(t, err)
	for _, row := range regexp.MustCompile("(?m)^\\| `(oncebox\\.[a-z._]+)`").FindAllStringSubmatch(string(page), -1) {
		names = append(names, strings.ReplaceAll(row[1], ".", "_"))
	}
	require.NotEmpty(t, names)
	return names
}

// bare is the name without what Prometheus adds to it.
func bare(name string) string {
	for _, suffix := range []string{"_bucket", "_count", "_sum", "_total", "_seconds"} {
		name = strings.TrimSuffix(name, suffix)
	}
	return name
}

// faulty is a broker that fails as told by the types of events, and what else goes wrong while it publishes.
type faulty struct {
	*pulsar.Broker
	db   *bun.DB
	said sync.Map // what went wrong once
}

func (b *faulty) first(what string) bool {
	_, already := b.said.LoadOrStore(what, true)
	return !already
}

func (b *faulty) Publish(ctx context.Context, msgs []event.Envelope) error {
	for i, m := range msgs {
		switch {
		case m.Type == "refused" && b.first("refused"):
			return &messaging.PublishError{Failed: map[int]error{i: errors.New("not now")}}
		case m.Type == "refused":
			return &messaging.PublishError{Failed: map[int]error{i: messaging.Permanent(errors.New("no schema"))}}
		case m.Type == "unconfirmed" && b.first("unconfirmed"):
			return messaging.ErrBrokerDown
		case m.Type == "fenced" && b.first("fenced"): // another projector has the lanes from here on
			if _, err := b.db.ExecContext(ctx, "UPDATE outbox_lane SET owner = 'nobody', lease_until = '-infinity', epoch = epoch + 1"); err != nil {
				return err
			}
		}
	}
	return b.Broker.Publish(ctx, msgs)
}

// A counter shows 0 before the first time, with each label whose values are known: increase() does not see a first time that is the first value.
// Those by topic or tenant cannot.
func TestCountersBeginAtZero(t *testing.T) {
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	require.NoError(t, err)
	cfg := quickConfig()
	cfg.MeterProvider = metric.NewMeterProvider(metric.WithReader(reader))
	cfg.Outbox.OnDead = func(context.Context, bun.Tx, outbox.DeadLetter) error { return nil }
	cfg.Inbox.OnDead = func(context.Context, *uow.Unit, inbox.DeadLetter) error { return nil }
	cfg.Outbox.BeforeDrop = func(context.Context, outbox.Partition) error { return nil }
	db := pgtest.Migrated(t)
	app, err := oncebox.New(db.DB, memory.New(nil), cfg)
	require.NoError(t, err)
	app.Consume("order", "billing", messaging.NewRouter(app.Registry))
	run(t, app)
	want := map[string]string{
		"oncebox_uow_units": "outcome=rolled_back", "oncebox_uow_retries": "", "oncebox_outbox_published": "", "oncebox_outbox_unconfirmed": "",
		"oncebox_outbox_fenced": "", "oncebox_outbox_unannounced": "", "oncebox_outbox_reconciled": "kind=stuck", "oncebox_outbox_partitions_kept": "",
		"oncebox_inbox_messages": "outcome=dead", "oncebox_inbox_unannounced": "consumer=billing", "oncebox_idempotency_purged": "",
	}
	for name, label := range want {
		await.True(t, func() bool {
			is := gather(t, registry)[name]
			return is.series != nil && (label == "" || is.labels[label])
		}, "%s shows %s", name, label)
	}
	shown := gather(t, registry)
	for name := range want {
		if name != "oncebox_uow_units" {
			require.Zero(t, shown[name].counted, name)
		}
	}
}

// scrape runs a service on Pulsar in which each thing happens once that a metric tells of, until it shows all that is documented.
func scrape(t *testing.T) map[string]family {
	t.Helper()
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	require.NoError(t, err)
	provider := metric.NewMeterProvider(metric.WithReader(reader))
	before := otel.GetMeterProvider()
	otel.SetMeterProvider(provider) // for the router
	t.Cleanup(func() { otel.SetMeterProvider(before) })

	db, namespace := pgtest.Migrated(t), pulsartest.Open(t)
	cfg := quickConfig()
	cfg.MeterProvider = provider
	cfg.Projector.CleanInterval = -1 // the test cleans
	cfg.Outbox.OnDead = func(context.Context, bun.Tx, outbox.DeadLetter) error { return errors.New("nobody to tell") }
	cfg.Inbox.OnDead = func(context.Context, *uow.Unit, inbox.DeadLetter) error { return errors.New("nobody to tell") }
	cfg.Outbox.BeforeDrop = func(context.Context, outbox.Partition) error { return errors.New("the archive is full") }
	tenant, name, _ := strings.Cut(namespace.Name, "/")
	client, err := pulsar.Connect(t.Context(), &pulsar.Config{
		URL: namespace.URL, AdminURL: namespace.AdminURL, Tenant: tenant, Namespace: name, Logger: cfg.Logger, MeterProvider: provider,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	app, err := oncebox.New(db.DB, &faulty{Broker: client, db: db.DB}, cfg)
	require.NoError(t, err)
	app.Consume("order", "billing", messaging.NewRouter(app.Registry))
	run(t, app)

	add := func(topic, kind string) {
		require.NoError(t, app.UoW.Do(t.Context(), func(_ context.Context, u *uow.Unit) error {
			return u.Add(topic, []byte(kind), event.WithType(kind), event.WithOrderingKey(kind))
		}))
	}
	// One after the other: the faults of one batch would hide each other.
	for _, fault := range []struct{ topic, kind, shown string }{
		{"order", "unknown", "oncebox_router_skipped"},
		{"nobody", "unwatched", "oncebox_broker_unwatched_topics"},
		{"order", "refused", "oncebox_outbox_attempts"},
		{"order", "unconfirmed", "oncebox_outbox_unconfirmed"},
		{"order", "fenced", "oncebox_outbox_fenced"},
	} {
		add(fault.topic, fault.kind)
		await.True(t, func() bool { return gather(t, registry)[fault.shown].counted > 0 }, "%s shows what is %s", fault.shown, fault.kind)
	}
	again := false
	require.NoError(t, app.UoW.Do(t.Context(), func(context.Context, *uow.Unit) error {
		if !again {
			again = true
			return uow.ErrConflict
		}
		return nil
	}))
	disorder(t, app, db.DB)
	request(t, app)

	shown := map[string]family{}
	for _, name := range documented(t) {
		await.True(t, func() bool { shown = gather(t, registry); return shown[name].series != nil }, "%s, which docs/metrics.md lists, is shown", name)
	}
	return shown
}

// disorder has a reconciliation and a cleaner find something.
func disorder(t *testing.T, app *oncebox.App, db *bun.DB) {
	t.Helper()
	_, err := db.Exec("DELETE FROM outbox_lane WHERE lane = 63")
	require.NoError(t, err)
	found, err := app.Outbox.Reconcile(t.Context())
	require.NoError(t, err)
	require.NotZero(t, found.Total())
	_, err = db.Exec(`INSERT INTO outbox_sent (seq, id, occurred_at, created_at, aggregate_version, schema_version, lane, retry_count, crashes, tenant_id,
		topic, aggregate_type, aggregate_id, event_type, source, content_type, event_metadata, payload, sent_at)
		VALUES (nextval('outbox_seq'), gen_random_uuid(), now(), now(), 0, 1, 0, 0, 0, 't', 'order', '', '', 'e', 's', 'text/plain', '{}', '', '2020-01-02')`)
	require.NoError(t, err)
	require.NoError(t, app.Outbox.Clean(t.Context()))
	_, err = app.Idempotency.Purge(t.Context(), db)
	require.NoError(t, err)
}

// request answers a request with a key.
func request(t *testing.T, app *oncebox.App) {
	t.Helper()
	scope := func(*http.Request) (idempotency.Scope, error) {
		return idempotency.Scope{Tenant: "t", Principal: "ann"}, nil
	}
	handler := httpmw.Idempotency(app.UoW, app.Idempotency, scope, &httpmw.IdempotencyConfig{MeterProvider: otel.GetMeterProvider()})(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
	r.Header.Set("Idempotency-Key", "k")
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, r)
	require.Equal(t, http.StatusNoContent, answer.Code)
}

func gather(t *testing.T, registry *prometheus.Registry) map[string]family {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	shown := map[string]family{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "oncebox_") {
			continue
		}
		series, labels, counted := map[string]bool{f.GetName(): true}, map[string]bool{}, 0.0
		for _, m := range f.GetMetric() {
			counted += m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			for _, b := range m.GetHistogram().GetBucket() {
				labels[fmt.Sprint("le=", b.GetUpperBound())] = true
			}
			if m.GetHistogram() != nil {
				series = map[string]bool{f.GetName() + "_bucket": true, f.GetName() + "_count": true, f.GetName() + "_sum": true}
			}
			for _, l := range m.GetLabel() {
				labels[l.GetName()+"="+l.GetValue()], labels[l.GetName()] = true, true
			}
		}
		require.NotContains(t, shown, bare(f.GetName()))
		shown[bare(f.GetName())] = family{series, labels, counted}
	}
	return shown
}
