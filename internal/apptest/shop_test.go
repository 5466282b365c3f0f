package apptest_test

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/brokers"
	"github.com/oncebox/oncebox/messaging/pulsar"
	"github.com/oncebox/oncebox/serve"
	"github.com/oncebox/oncebox/uow"
)

// called is set in a process that a test has started, which is the service and runs no tests.
const called = "SERVE_TEST_SERVICE"

func TestMain(m *testing.M) {
	if os.Getenv(called) != "" {
		serve.Main(shop())
	}
	pgtest.Main(m, pulsartest.Stop)
}

// placed is the event of the service.
type placed struct {
	ID string `json:"id"`
}

func (placed) EventType() string { return "order.placed" }

// gate is an advisory lock that a request for a slow order waits for.
const gate = 4711

// shop is a service as its author writes it.
func shop() serve.Service {
	return serve.Service{
		Source:  "shop",
		Brokers: []brokers.Kind{pulsar.Kind()},
		Migrate: func(ctx context.Context, db *bun.DB) error {
			_, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS orders (id text PRIMARY KEY); CREATE TABLE IF NOT EXISTS handled (id text)")
			return err
		},
		Setup: setup,
	}
}

func setup(_ context.Context, app *oncebox.App) (http.Handler, error) {
	event.Register[placed](app.Registry)
	router := messaging.NewRouter(app.Registry)
	messaging.Handle(router, func(ctx context.Context, e placed) error {
		_, err := app.UoW.DB(ctx).NewRaw("INSERT INTO handled VALUES (?)", e.ID).Exec(ctx)
		return err
	})
	app.Consume("order", "counter", router)

	anyone := func(*http.Request) (idempotency.Scope, error) { return idempotency.Anonymous("default"), nil }
	once := httpmw.Idempotency(app.UoW, app.Idempotency, anyone, nil)
	place := func(slow bool) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			err := app.UoW.Do(r.Context(), func(ctx context.Context, u *uow.Unit) error {
				if slow {
					if _, err := u.DB().NewRaw("SELECT pg_advisory_xact_lock_shared(?)", gate).Exec(ctx); err != nil {
						return err
					}
				}
				if _, err := u.DB().NewRaw("INSERT INTO orders VALUES (?)", chi.URLParam(r, "id")).Exec(ctx); err != nil {
					return err
				}
				return u.Add("order", placed{chi.URLParam(r, "id")})
			})
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			w.WriteHeader(http.StatusCreated)
		}
	}
	r := chi.NewRouter()
	r.With(once).Post("/orders/{id}", place(false))
	r.With(once).Post("/slow/{id}", place(true))
	r.Get("/panic", func(http.ResponseWriter, *http.Request) { panic("no") })
	r.Get("/stuck", func(http.ResponseWriter, *http.Request) {
		slog.Info("stuck")
		select {}
	})
	return r, nil
}

// variables are the settings of one service on tables of its own.
func variables(t *testing.T, db *pgtest.DB, more map[string]string) map[string]string {
	t.Helper()
	all := map[string]string{
		"ONCEBOX_DATABASE_URL": db.DSN, "ONCEBOX_SERVE_ADDR": "127.0.0.1:0", "ONCEBOX_SERVE_MIGRATE": "true",
	}
	if _, named := more["ONCEBOX_PULSAR_URL"]; !named {
		all["ONCEBOX_SERVE_BROKER"] = "none"
	}
	maps.Copy(all, more)
	return all
}

// onPulsar are the settings for a broker of the tests.
func onPulsar(n *pulsartest.Namespace, url string) map[string]string {
	return map[string]string{
		"ONCEBOX_PULSAR_URL": url, "ONCEBOX_PULSAR_ADMIN_URL": n.AdminURL, "ONCEBOX_PULSAR_NAMESPACE": strings.TrimPrefix(n.Name, "public/"),
	}
}

// running is a service within this process.
type running struct {
	t     *testing.T
	url   string
	stop  context.CancelFunc
	ended chan error
}

// run runs a service until the test ends.
func run(t *testing.T, s serve.Service, vars map[string]string) *running {
	t.Helper()
	r, started := begin(t, s, vars)
	r.url = "http://" + await.Receive(t, started, "the service to start").String()
	return r
}

// begin starts a service, which need not come up.
func begin(t *testing.T, s serve.Service, vars map[string]string) (r *running, started chan net.Addr) {
	t.Helper()
	clean(t)
	for name, value := range vars {
		t.Setenv(name, value)
	}
	started = make(chan net.Addr, 1)
	s.Started = func(at net.Addr) { started <- at }
	ctx, stop := context.WithCancel(context.Background())
	r = &running{t: t, stop: stop, ended: make(chan error, 1)}
	read := make(chan struct{})
	configured := s.Configure
	s.Configure = func(app *config.Config, process *serve.Config) error {
		defer close(read)
		if configured == nil {
			return nil
		}
		return configured(app, process)
	}
	go func() { r.ended <- serve.Run(ctx, s) }()
	await.Receive(t, read, "the variables to be read") // another service of this test may change them from now on
	t.Cleanup(func() {
		stop()
		http.DefaultClient.CloseIdleConnections()
		if !t.Failed() {
			require.NoError(t, r.end())
		}
	})
	return r, started
}

// end stops the service and returns what Run returned.
func (r *running) end() error {
	r.t.Helper()
	r.stop()
	err := await.Receive(r.t, r.ended, "the service to end")
	r.ended <- err
	return err
}

// clean removes variables that name the servers of the tests, for the time of the test.
func clean(t *testing.T) {
	t.Helper()
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "ONCEBOX_") || name == "DATABASE_URL" || strings.HasPrefix(name, "PULSAR_") || strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, "")
		}
	}
}

// do sends a request and returns status and body.
func do(t *testing.T, method, url string, header ...string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	require.NoError(t, err)
	for n := 0; n+1 < len(header); n += 2 {
		req.Header.Set(header[n], header[n+1])
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(text)
}

func count(t *testing.T, db *pgtest.DB, query string) (n int) {
	t.Helper()
	require.NoError(t, db.NewRaw(query).Scan(t.Context(), &n))
	return n
}
