package service

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"go.opentelemetry.io/otel"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/apptest"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/metricstest"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/promtest"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

// Service is a service on Pulsar whose metrics are collected.
type Service struct {
	*oncebox.App
	*metricstest.Histograms

	// Registry collects all metrics of the service.
	Registry *prometheus.Registry

	t  testing.TB
	db *bun.DB
}

// Run runs a service until the test ends. It makes everything happen once that a metric counts, and returns when the
// metrics with these names have appeared.
func Run(t testing.TB, names []string) *Service {
	t.Helper()
	s := start(t)
	// One after the other, because faults in one batch would hide each other.
	for _, fault := range []struct{ topic, kind, shown string }{
		{"order", "unknown", "oncebox_router_skipped"},
		{"nobody", "unwatched", "oncebox_broker_unwatched_topics"},
		{"order", "refused", "oncebox_outbox_attempts"},
		{"order", "unconfirmed", "oncebox_outbox_unconfirmed"},
		{"order", "fenced", "oncebox_outbox_fenced"},
	} {
		s.Emit(fault.topic, fault.kind)
		s.awaitCount(fault.shown, 1)
	}
	again := false
	require.NoError(t, s.UoW.Do(t.Context(), func(context.Context, *uow.Unit) error {
		if !again {
			again = true
			return uow.ErrConflict
		}
		return nil
	}))
	s.disorder()
	s.request()
	for _, name := range names {
		await.True(t, func() bool { return promtest.Gather(t, s.Registry)[name].Series != nil }, "%s is shown", name)
	}
	// The series exist before a consumer has written its first report.
	await.True(t, func() bool { return promtest.Gather(t, s.Registry)["oncebox_inbox_processes"].Highest > 0 }, "the processes of consumers are counted")
	return s
}

func start(t testing.TB) *Service {
	t.Helper()
	s := &Service{Registry: prometheus.NewRegistry(), t: t}
	reader, err := exporter.New(exporter.WithRegisterer(s.Registry))
	require.NoError(t, err)
	s.Histograms = metricstest.NewHistograms(metric.NewMeterProvider(metric.WithReader(reader)))
	before := otel.GetMeterProvider()
	otel.SetMeterProvider(s.Histograms) // the router uses the global provider
	t.Cleanup(func() { otel.SetMeterProvider(before) })

	db, namespace := pgtest.Migrated(t), pulsartest.Open(t)
	s.db = db.DB
	cfg := s.config()
	tenant, name, _ := strings.Cut(namespace.Name, "/")
	client, err := pulsar.Connect(t.Context(), &pulsar.Config{
		URL: namespace.URL, AdminURL: namespace.AdminURL, Tenant: tenant, Namespace: name,
		Telemetry: telemetry.Config{Logger: cfg.Telemetry.Logger, MeterProvider: s.Histograms},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	s.App, err = oncebox.New(s.db, &faulty{Broker: client, db: s.db}, cfg)
	require.NoError(t, err)
	s.Consume("order", "billing", messaging.NewRouter(s.App.Registry))
	s.pauseMailer()
	apptest.Run(t, s.App)
	return s
}

// pauseMailer adds a consumer that handles nothing, because it is paused before it runs.
func (s *Service) pauseMailer() {
	s.t.Helper()
	s.Consume("order", "mailer", messaging.NewRouter(s.App.Registry))
	require.NoError(s.t, s.Inbox.SubscribeAll(s.t.Context()))
	require.NoError(s.t, s.Inbox.Consumers().Pause(s.t.Context(), "mailer", 0, operator.By{Actor: "ann", Reason: "smtp is down"}))
}

// config returns a configuration with short times, and hooks that all fail.
func (s *Service) config() config.Config {
	cfg := apptest.Config()
	cfg.Telemetry.MeterProvider = s.Histograms
	cfg.Projector.CleanInterval = -1 // disorder calls the cleaner
	cfg.Outbox.OnDead = func(context.Context, bun.Tx, outbox.DeadLetter) error { return errors.New("nobody to notify") }
	cfg.Inbox.OnDead = func(context.Context, *uow.Unit, inbox.DeadLetter) error { return errors.New("nobody to notify") }
	cfg.Outbox.BeforeDrop = func(context.Context, outbox.Partition) error { return errors.New("the archive is full") }
	return cfg
}

// Emit commits a unit of work with one event.
func (s *Service) Emit(topic, kind string) {
	s.t.Helper()
	require.NoError(s.t, s.UoW.Do(s.t.Context(), func(_ context.Context, u *uow.Unit) error {
		return u.Add(topic, []byte(kind), event.WithType(kind), event.WithOrderingKey(kind))
	}))
}

// Work makes the consumer handle one more message.
func (s *Service) Work() {
	s.t.Helper()
	handled := promtest.Gather(s.t, s.Registry)["oncebox_inbox_messages"].Counted
	s.Emit("order", "unknown")
	s.awaitCount("oncebox_inbox_messages", handled+1)
}

func (s *Service) awaitCount(name string, n float64) {
	s.t.Helper()
	await.True(s.t, func() bool { return promtest.Gather(s.t, s.Registry)[name].Counted >= n }, "%s shows %v", name, n)
}

// disorder gives the reconciliation and the cleaner something to find.
func (s *Service) disorder() {
	s.t.Helper()
	ctx := s.t.Context()
	_, err := s.db.ExecContext(ctx, "DELETE FROM outbox_lane WHERE lane = 63")
	require.NoError(s.t, err)
	found, err := s.Outbox.Upkeep().Reconcile(ctx)
	require.NoError(s.t, err)
	require.NotZero(s.t, found.Total())
	_, err = s.db.ExecContext(ctx, `INSERT INTO outbox_sent (seq, id, occurred_at, created_at, aggregate_version, schema_version, lane, retry_count, crashes,
		tenant_id, topic, aggregate_type, aggregate_id, event_type, source, content_type, event_metadata, payload, sent_at)
		VALUES (nextval('outbox_seq'), gen_random_uuid(), now(), now(), 0, 1, 0, 0, 0, 't', 'order', '', '', 'e', 's', 'text/plain', '{}', '', '2020-01-02')`)
	require.NoError(s.t, err)
	require.NoError(s.t, s.Outbox.Clean(ctx))
	_, err = s.Idempotency.Purge(ctx, s.db)
	require.NoError(s.t, err)
}

// request answers a request with a key.
func (s *Service) request() {
	s.t.Helper()
	scope := func(*http.Request) (idempotency.Scope, error) {
		return idempotency.Scope{Tenant: "t", Principal: "ann"}, nil
	}
	handler := httpmw.Idempotency(s.UoW, s.Idempotency, scope, &httpmw.IdempotencyConfig{Telemetry: telemetry.Config{MeterProvider: s.Histograms}})(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	r := httptest.NewRequestWithContext(s.t.Context(), http.MethodPost, "/", nil)
	r.Header.Set("Idempotency-Key", "k")
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, r)
	require.Equal(s.t, http.StatusNoContent, answer.Code)
}
