package apptest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/console"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/readmodel"
	"github.com/oncebox/oncebox/internal/apptest"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/messaging/pulsar"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/uow"
)

// nobodys are the global providers and the default log of a program that uses its own. They note who uses them.
type nobodys struct {
	metricnoop.MeterProvider

	mu   sync.Mutex
	uses []string
}

func (n *nobodys) note(what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.uses = append(n.uses, what+"\n"+string(debug.Stack()))
}

func (n *nobodys) Meter(name string, _ ...metric.MeterOption) metric.Meter {
	n.note("meter " + name)
	return metricnoop.Meter{}
}

func (n *nobodys) Handle(_ context.Context, r slog.Record) error {
	n.note("log " + r.Message)
	return nil
}

// Enabled leaves out what Pulsar's client says before there is an application: it connects first.
func (n *nobodys) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (n *nobodys) WithAttrs([]slog.Attr) slog.Handler { return n }
func (n *nobodys) WithGroup(string) slog.Handler      { return n }

type nobodysTracers struct {
	tracenoop.TracerProvider
	*nobodys
}

func (n nobodysTracers) Tracer(name string, _ ...trace.TracerOption) trace.Tracer {
	n.note("tracer " + name)
	return tracenoop.Tracer{}
}

// globally makes them the global ones, for the time of the test.
func globally(t *testing.T) *nobodys {
	t.Helper()
	n := &nobodys{}
	meters, tracers, log := otel.GetMeterProvider(), otel.GetTracerProvider(), slog.Default()
	// Instruments that other tests have made with the global providers are made once more with the first
	// providers that are set.
	otel.SetMeterProvider(metricnoop.NewMeterProvider())
	otel.SetTracerProvider(tracenoop.NewTracerProvider())
	otel.SetMeterProvider(n)
	otel.SetTracerProvider(nobodysTracers{nobodys: n})
	slog.SetDefault(slog.New(n))
	t.Cleanup(func() {
		otel.SetMeterProvider(meters)
		otel.SetTracerProvider(tracers)
		slog.SetDefault(log)
	})
	return n
}

// Logs, traces and metrics of all parts go where config.Config says, also of a broker that was made before, and of parts without a configuration.
func TestTelemetryGoesWhereTheConfigurationSays(t *testing.T) {
	for name, broker := range map[string]func(*testing.T) oncebox.Broker{
		"memory": func(*testing.T) oncebox.Broker { return memory.New(nil) },
		"pulsar": func(t *testing.T) oncebox.Broker {
			namespace := pulsartest.Open(t)
			tenant, name, _ := strings.Cut(namespace.Name, "/")
			client, err := pulsar.Connect(t.Context(), &pulsar.Config{URL: namespace.URL, AdminURL: namespace.AdminURL, Tenant: tenant, Namespace: name})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, client.Close()) })
			return client
		},
		"none": func(*testing.T) oncebox.Broker { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			db, unused := pgtest.Migrated(t), globally(t)
			reader, spans := sdkmetric.NewManualReader(), tracetest.NewInMemoryExporter()
			var log logbook.Book
			cfg := apptest.Config()
			cfg.Telemetry.Logger, cfg.Telemetry.MeterProvider = log.Logger(), sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
			cfg.Telemetry.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
			cfg.Consumer.Retry.Delay, cfg.Inbox.PollInterval = time.Millisecond, 10*time.Millisecond
			cfg.Inbox.Retry.Tries, cfg.Inbox.Retry.Delay = 1, time.Millisecond
			app, err := oncebox.New(db.DB, broker(t), cfg)
			require.NoError(t, err)
			doEverything(t, app, db)
			unused.mu.Lock()
			defer unused.mu.Unlock()
			require.Empty(t, unused.uses)

			seen := map[string]bool{}
			var all metricdata.ResourceMetrics
			require.NoError(t, reader.Collect(t.Context(), &all))
			for _, scope := range all.ScopeMetrics {
				for _, m := range scope.Metrics {
					seen[m.Name] = true
				}
			}
			want := []string{
				"oncebox.router.skipped", "oncebox.idempotency.requests", "oncebox.uow.units", "oncebox.outbox.published", "oncebox.consumer.handled",
			}
			scopes := []string{"uow", "projector", "messaging", "httpmw", "idempotency"}
			if name != "none" {
				want, scopes = append(want, "oncebox.broker.published"), append(scopes, "messaging/"+name)
			}
			for _, metric := range want {
				require.True(t, seen[metric], "%s is in %v", metric, seen)
			}
			traced := map[string]bool{}
			for _, span := range spans.GetSpans() {
				traced[strings.TrimPrefix(span.InstrumentationScope.Name, "github.com/oncebox/oncebox/")] = true
			}
			for _, scope := range scopes {
				require.True(t, traced[scope], "%s is in %v", scope, traced)
			}
			require.Contains(t, log.String(), "messages of this type are settled without being handled")
			require.Contains(t, log.String(), "found no valid tenant in a request")
		})
	}
}

// doEverything has each part do something, and some of it fail.
func doEverything(t *testing.T, app *oncebox.App, db *pgtest.DB) {
	t.Helper()
	event.Register[placed](app.Registry)
	var handled, failed atomic.Int32
	router := messaging.NewRouter(app.Registry)
	messaging.Handle(router, func(_ context.Context, e placed) error {
		switch {
		case e.ID == "dead":
			return messaging.Permanent(errors.New("never"))
		case failed.Add(1) <= 3:
			return errors.New("not now")
		}
		handled.Add(1)
		return nil
	})
	app.Consume("order", "billing", router)
	app.Consume("order", "leased", router, inbox.Leased())
	app.ConsumeBatch("order", "batch", func(ctx context.Context, msgs []*messaging.Message) error {
		for _, m := range msgs {
			if err := router.Handle(ctx, m); err != nil {
				return err
			}
		}
		return nil
	})
	app.Consume("order", "view", readmodel.New(app.Inbox, "view", router))
	stop := apptest.Run(t, app)

	tenant := httpmw.Tenant(func(r *http.Request) (string, error) { return r.Header.Get("X-Tenant"), nil }, httpmw.WithTenantLogger(app.UoW.Telemetry().Logger))
	scope := func(*http.Request) (idempotency.Scope, error) { return idempotency.Anonymous("default"), nil }
	place := func(ctx context.Context, id string) error {
		return app.UoW.Do(ctx, func(_ context.Context, u *uow.Unit) error {
			return u.Add("order", placed{id}, event.WithAggregate("order", id, 0))
		})
	}
	placing := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := place(r.Context(), r.URL.Query().Get("id")); err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
	})
	once := tenant(httpmw.Idempotency(app.UoW, app.Idempotency, scope, nil)(placing))
	leased := tenant(httpmw.Idempotency(app.UoW, app.Idempotency, scope, &httpmw.IdempotencyConfig{Lease: &httpmw.LeaseConfig{}})(placing))
	for n, h := range []http.Handler{once, once, leased, tenant(httpmw.UnitOfWork(app.UoW)(placing)), tenant(placing)} {
		for _, of := range []string{"", "t"} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, fmt.Sprintf("/?id=o%d", n), nil)
			r.Header.Set("Idempotency-Key", fmt.Sprint("k", n/2))
			r.Header.Set("X-Tenant", of)
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
	}
	for _, id := range []string{"a", "dead"} {
		require.NoError(t, place(t.Context(), id))
	}
	require.NoError(t, app.UoW.Do(t.Context(), func(_ context.Context, u *uow.Unit) error {
		return u.Add("order", []byte("?"), event.WithType("unknown"), event.WithOrderingKey("?"))
	}))
	await.True(t, func() bool {
		dead, err := app.Inbox.Dead().Count(t.Context(), operator.DeadFilter{})
		return err == nil && dead == 4 && handled.Load() >= 12
	}, "what can be handled is handled")
	_, err := app.Outbox.Upkeep().Reconcile(t.Context())
	require.NoError(t, errors.Join(err, app.Outbox.Clean(t.Context()), app.Inbox.Clean(t.Context())))
	_, err = app.Idempotency.Purge(t.Context(), db.DB)
	require.NoError(t, err)
	page, err := console.New(db.DB, func(*http.Request) (console.Access, error) { return console.Access{}, errors.New("no") },
		&console.Config{Outbox: app.Outbox, Inbox: app.Inbox, Idempotency: app.Idempotency})
	require.NoError(t, err)
	page.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	require.NoError(t, app.Ready(t.Context()))
	stop()
}
