package recipes

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging/pulsar"
)

// Serve is what main calls: it answers requests, publishes and consumes until SIGTERM, and then lets the requests under way end.
func Serve(listener net.Listener, routes func(*oncebox.App) http.Handler) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	cfg, err := config.FromEnv() // ONCEBOX_DATABASE_URL, ONCEBOX_SOURCE, ...
	if err != nil {
		return err
	}
	db, err := config.OpenDB(ctx, cfg)
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
	event.Register[Deposited](app.Registry)
	event.Register[Withdrawn](app.Registry)
	ConsumeDeposits(app)
	if err := app.Migrate(ctx); err != nil { // or "oncebox migrate up" before the deployment
		return err
	}

	server := &http.Server{Handler: routes(app), ReadHeaderTimeout: 10 * time.Second}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return app.Run(ctx) })
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		return server.Shutdown(end)
	})
	return group.Wait()
}
