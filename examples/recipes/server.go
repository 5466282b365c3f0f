package recipes

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/propagation"
	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging/pulsar"
	"github.com/oncebox/oncebox/serve/probe"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/telemetry/otlp"
	"github.com/oncebox/oncebox/telemetry/prom"
)

// Serve does by hand what package serve does: it answers requests, publishes and consumes until SIGTERM.
func Serve(listener net.Listener, routes func(*oncebox.App) http.Handler) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // from now on a signal ends the process at once
	cfg, err := config.FromEnv() // ONCEBOX_DATABASE_URL, ONCEBOX_SOURCE, ...
	if err != nil {
		return err
	}
	meters, metrics, err := prom.New()
	if err != nil {
		return err
	}
	traces, endTraces, err := otlp.Traces(ctx, cfg.UoW.Source) // there are none unless OTEL_EXPORTER_OTLP_ENDPOINT is set
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, endTraces(context.WithoutCancel(ctx))) }()
	log := slog.New(telemetry.WithIDs(slog.NewTextHandler(os.Stderr, nil)))
	cfg.Telemetry = telemetry.Config{Logger: log, TracerProvider: traces, MeterProvider: meters}

	db, err := config.OpenDB(ctx, cfg) // waits for a database that is away
	if err != nil {
		return err
	}
	defer db.Close()
	var pulsarConfig pulsar.Config
	if err := config.Env("ONCEBOX_PULSAR_", &pulsarConfig); err != nil { // ONCEBOX_PULSAR_URL, ONCEBOX_PULSAR_ADMIN_URL, ...
		return err
	}
	broker, err := pulsar.Connect(ctx, &pulsarConfig) // if Pulsar is away, requests are answered nevertheless
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, broker.Close()) }()
	app, err := oncebox.New(db, broker, cfg)
	if err != nil {
		return err
	}
	event.RegisterAll(app.Registry, Deposited{}, Withdrawn{})
	ConsumeDeposits(app)
	if err := app.Migrate(ctx); err != nil { // or "oncebox migrate up" before the deployment
		return err
	}

	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", probe.Alive)
	mux.Handle("GET /readyz", probe.Ready(log, app.ReadyToWrite))
	mux.Handle("GET /metrics", metrics)
	mux.Handle("/", otelhttp.NewHandler(routes(app), "request", otelhttp.WithTracerProvider(traces), otelhttp.WithMeterProvider(meters),
		otelhttp.WithPropagators(propagation.TraceContext{})))
	return answerAndRun(ctx, app, listener, mux)
}

// answerAndRun ends requests first, because they record events, and then relay and consumers.
func answerAndRun(ctx context.Context, app *oncebox.App, listener net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 15 * time.Second, ReadTimeout: 15 * time.Second, WriteTimeout: 2 * time.Minute}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return app.Run(running) })
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done() // SIGTERM, or one of the others has failed
		defer stop()
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 40*time.Second)
		defer cancel()
		return server.Shutdown(end)
	})
	return group.Wait()
}
