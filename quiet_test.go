package oncebox_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/apptest"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/internal/nightly"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/quietlog"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/retry"
)

// Something that a handler needs is away. However many keys fail, and however often, the log has a few lines for each
// consumer. With the setting for it, every failure is a line.
func TestManyFailingKeysAreAFewLines(t *testing.T) {
	const tries = 3
	keys := nightly.N(60, 400)
	for name, c := range map[string]struct {
		broker   func() oncebox.Broker
		interval time.Duration
		options  []inbox.Option
		batch    bool
	}{
		"broker":        {broker: func() oncebox.Broker { return memory.New(nil) }},
		"no broker":     {},
		"leased":        {options: []inbox.Option{inbox.Leased()}},
		"batch":         {batch: true},
		"every failure": {interval: -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Migrated(t)
			var book logbook.Book
			cfg := apptest.Config()
			cfg.Telemetry.Logger, cfg.LogInterval = book.Logger(), c.interval
			cfg.Inbox.Retry = inbox.RetryPolicy{Tries: 1, Policy: retry.Policy{Delay: 10 * time.Millisecond, MaxDelay: 50 * time.Millisecond}}
			cfg.Inbox.PollInterval = 20 * time.Millisecond
			var broker oncebox.Broker
			if c.broker != nil {
				broker = c.broker()
			}
			app, err := oncebox.New(db.DB, broker, cfg)
			require.NoError(t, err)
			event.Register[OrderPlaced](app.Registry)
			var mu sync.Mutex
			failed, done := map[string]int{}, 0
			var open atomic.Bool
			handle := func(_ context.Context, m *messaging.Message) error {
				mu.Lock()
				defer mu.Unlock()
				if open.Load() {
					done++
					return nil
				}
				failed[m.AggregateID]++
				return fmt.Errorf("smtp: order %q of %d bytes: connection refused", m.AggregateID, len(m.AggregateID))
			}
			if c.batch {
				app.ConsumeBatch("order", "billing", func(ctx context.Context, msgs []*messaging.Message) error {
					for _, m := range msgs {
						if err := handle(ctx, m); err != nil {
							return err
						}
					}
					return nil
				})
			} else {
				app.Consume("order", "billing", messaging.HandlerFunc(handle), c.options...)
			}
			stop := apptest.Run(t, app)
			var ids []string
			for n := range keys {
				ids = append(ids, fmt.Sprintf("o%d", n))
			}
			place(t, app, ids...)
			await.True(t, func() bool {
				mu.Lock()
				defer mu.Unlock()
				often := 0
				for _, n := range failed {
					if n >= tries {
						often++
					}
				}
				return often == keys
			}, "each key fails some times")
			open.Store(true)
			await.True(t, func() bool {
				mu.Lock()
				defer mu.Unlock()
				return done >= keys
			}, "they are handled")
			stop()
			lines := strings.Count(book.String(), "level=WARN") + strings.Count(book.String(), "level=ERROR")
			if c.interval < 0 {
				require.GreaterOrEqual(t, lines, keys*tries)
				return
			}
			require.LessOrEqual(t, lines, 10, "%s", book.String())
			require.Contains(t, book.String(), "repeated.lines=", "the end of the process hides nothing")
			require.Contains(t, book.String(), "consumer=billing")
		})
	}
}

// The database is away: a thousand requests are one line, and their other failures add no lines of their own.
func TestManyFailingRequestsAreOneLine(t *testing.T) {
	const requests = 1000
	db, err := config.OpenDB(t.Context(), config.Config{DatabaseURL: pgtest.URL(t)})
	require.NoError(t, err)
	require.NoError(t, db.Close(), "sql: database is closed, from now on")
	for name, mount := range map[string]func(*oncebox.App) http.Handler{
		"key": func(app *oncebox.App) http.Handler {
			anybody := func(*http.Request) (idempotency.Scope, error) { return idempotency.Anonymous(""), nil }
			return httpmw.Idempotency(app.UoW, app.Idempotency, anybody, nil)(http.NotFoundHandler())
		},
		"unit of work": func(app *oncebox.App) http.Handler { return httpmw.UnitOfWork(app.UoW)(http.NotFoundHandler()) },
	} {
		t.Run(name, func(t *testing.T) {
			var book logbook.Book
			cfg := apptest.Config()
			cfg.Telemetry.Logger = book.Logger()
			app, err := oncebox.New(db, memory.New(nil), cfg)
			require.NoError(t, err)
			mux := http.NewServeMux()
			mux.Handle("POST /orders/{id}", mount(app))
			for n := range requests {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, fmt.Sprintf("/orders/%d", n), nil)
				r.Header.Set("Idempotency-Key", fmt.Sprintf(`"%d"`, n))
				w := httptest.NewRecorder()
				mux.ServeHTTP(w, r)
				require.Equal(t, http.StatusServiceUnavailable, w.Code, w.Body.String())
			}
			require.Equal(t, 1, strings.Count(book.String(), "\n"), book.String())
			quietlog.Flush(app.UoW.Telemetry().Logger)
			require.Equal(t, 2, strings.Count(book.String(), "\n"), book.String())
			require.Contains(t, book.String(), "repeated.lines=999 repeated.total=1000")
		})
	}
}

// A part that is used without an App keeps to it with the logger that it is given.
func TestPartsByHandAreQuiet(t *testing.T) {
	var book logbook.Book
	logger := config.Quiet(book.Logger(), time.Hour)
	require.Same(t, logger, config.Quiet(logger, -1))
	for range 10 {
		logger.Error("oncebox: failed", "error", errors.New("no"))
	}
	require.Equal(t, 1, book.Count("oncebox: failed"))
	every := config.Quiet(book.Logger(), -1)
	for range 10 {
		every.Error("oncebox: failed too", "error", errors.New("no"))
	}
	require.Equal(t, 10, book.Count("oncebox: failed too"))
	require.ErrorContains(t, (&config.Config{LogInterval: time.Millisecond}).Validate(), "LogInterval is 1ms: give 1s or more")
}
