package apptest

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
)

// Config returns a configuration with short pauses and without a log.
func Config() config.Config {
	var cfg config.Config
	cfg.UoW.Source = "test"
	cfg.Telemetry.Logger = slog.New(slog.DiscardHandler)
	cfg.Projector.Retry.Delay, cfg.Projector.Retry.MaxDelay = time.Millisecond, time.Millisecond
	cfg.Projector.SleepBusy, cfg.Projector.SleepIdle = 5*time.Millisecond, 20*time.Millisecond
	cfg.Consumer.Retry.Delay = time.Millisecond
	return cfg
}

// Run starts the app and returns a function that stops it and waits for its end. The app ends with the test.
func Run(t testing.TB, app *oncebox.App, parts ...oncebox.Part) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- app.Run(ctx, parts...) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return stop
}
