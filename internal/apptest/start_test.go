package apptest_test

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/console"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/linktest"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/serve"
)

// A service that is started wrongly says what to do.
func TestEachWrongSettingIsAnError(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	base := variables(t, pgtest.Open(t), nil)
	with := func(more ...string) map[string]string {
		vars := maps.Clone(base)
		for n := 0; n+1 < len(more); n += 2 {
			vars[more[n]] = more[n+1]
			if more[n] != "ONCEBOX_DATABASE_URL" && strings.HasSuffix(more[n], "_URL") {
				vars["ONCEBOX_SERVE_BROKER"] = ""
			}
		}
		return vars
	}
	plain := func(change func(*serve.Service)) serve.Service {
		s := shop()
		if change != nil {
			change(&s)
		}
		return s
	}
	refused := errors.New("no such shop")
	for name, c := range map[string]struct {
		service serve.Service
		vars    map[string]string
		says    []string
	}{
		"no Setup":    {serve.Service{Source: "shop"}, base, []string{"Service.Setup is nil"}},
		"no source":   {plain(func(s *serve.Service) { s.Source = "" }), base, []string{"Service.Source", "ONCEBOX_SOURCE"}},
		"no database": {shop(), with("ONCEBOX_DATABASE_URL", ""), []string{"set ONCEBOX_DATABASE_URL"}},
		"a database that is down": {shop(), with("ONCEBOX_DATABASE_URL", "postgres://u@127.0.0.1:1/d", "ONCEBOX_DATABASE_WAIT", "-1"),
			[]string{"127.0.0.1:1", "start it, or correct ONCEBOX_DATABASE_URL"}},
		"all that is wrong at once": {shop(), with(
			"ONCEBOX_OUTBOX_LEASE", "soon", "ONCEBOX_SERVE_PART", "api", "ONCEBOX_SERVE_MIGRATE", "perhaps",
			"ONCEBOX_PULSAR_URL", "pulsar://127.0.0.1:1", "ONCEBOX_PULSAR_TENNANT", "shop",
		), []string{
			`ONCEBOX_OUTBOX_LEASE is "soon": give a duration`, "ONCEBOX_SERVE_PART does not exist: set ONCEBOX_SERVE_PARTS",
			`ONCEBOX_SERVE_MIGRATE is "perhaps": give true or false`, "ONCEBOX_PULSAR_TENNANT does not exist: set ONCEBOX_PULSAR_TENANT",
		}},
		"values that cannot be used": {shop(), with(
			"ONCEBOX_SERVE_PARTS", "api,projector", "ONCEBOX_SERVE_ADMIN_ADDR", "8081", "ONCEBOX_SERVE_READ_TIMEOUT", "-1",
			"ONCEBOX_SERVE_REQUEST_TIMEOUT", "-5s", "ONCEBOX_SERVE_END_TIMEOUT", "1ms", "ONCEBOX_SERVE_LOG_FORMAT", "xml", "ONCEBOX_SERVE_LOG_LEVEL", "loud",
		), []string{
			`ONCEBOX_SERVE_PARTS has "projector": give api, relay and consumers, or some of them`,
			`ONCEBOX_SERVE_ADMIN_ADDR is "8081": give host:port`, "ONCEBOX_SERVE_READ_TIMEOUT is -1ns", "ONCEBOX_SERVE_REQUEST_TIMEOUT is -5s",
			"ONCEBOX_SERVE_END_TIMEOUT is 1ms: give 1s or more", `ONCEBOX_SERVE_LOG_FORMAT is "xml": give text or json`,
			`ONCEBOX_SERVE_LOG_LEVEL is "loud": give debug, info, warn or error`,
		}},
		"an address that is taken": {shop(), with("ONCEBOX_SERVE_ADDR", taken.Addr().String()), []string{"ONCEBOX_SERVE_ADDR: choose another address"}},
		"a second address that is taken": {shop(), with("ONCEBOX_SERVE_ADMIN_ADDR", taken.Addr().String()),
			[]string{"ONCEBOX_SERVE_ADMIN_ADDR: choose another"}},
		"no address of a broker": {shop(), with("ONCEBOX_SERVE_BROKER", ""), []string{
			"no address is set: set ONCEBOX_PULSAR_URL, or ONCEBOX_SERVE_BROKER=none",
		}},
		"a broker without its address": {shop(), with("ONCEBOX_SERVE_BROKER", "pulsar"),
			[]string{"the broker pulsar needs an address: set ONCEBOX_PULSAR_URL"}},
		"a broker that the program does not link": {shop(), with("ONCEBOX_NATS_URL", "nats://127.0.0.1:1"),
			[]string{"ONCEBOX_NATS_URL is set", "add nats.Kind() to Service.Brokers"}},
		"two brokers": {shop(), with("ONCEBOX_NATS_URL", "nats://127.0.0.1:1", "ONCEBOX_PULSAR_URL", "pulsar://127.0.0.1:1"),
			[]string{"ONCEBOX_PULSAR_URL and ONCEBOX_NATS_URL are both set", "name the broker with ONCEBOX_SERVE_BROKER"}},
		"an address of another broker": {shop(), with("ONCEBOX_PULSAR_URL", "nats://127.0.0.1:1"), []string{"ONCEBOX_PULSAR_URL", "pulsar://host:6650"}},
		"people without a password": {shop(), with("ONCEBOX_SERVE_CONSOLE_READERS", "bob:x,ann"),
			[]string{"ONCEBOX_SERVE_CONSOLE_READERS: entry 2: give name:password"}},
		"somebody who is named twice": {shop(), with("ONCEBOX_SERVE_CONSOLE_READERS", "ann:x", "ONCEBOX_SERVE_CONSOLE_OPERATORS", "ann:y"),
			[]string{"ann is named twice"}},
		"a secret that is too short": {shop(), with("ONCEBOX_SERVE_CONSOLE_READERS", "ann:x", "ONCEBOX_SERVE_CONSOLE_SECRET", "short"),
			[]string{"ONCEBOX_SERVE_CONSOLE_SECRET", "at least 32"}},
		"passwords and an Authorizer": {plain(func(s *serve.Service) {
			s.Authorize = func(*http.Request) (console.Access, error) { return console.Access{}, nil }
		}), with("ONCEBOX_SERVE_CONSOLE_READERS", "ann:x"), []string{"Service.Authorize says who may use the console: unset it"}},
		"a protocol of traces that is not linked": {shop(), with(
			"OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc",
		), []string{`OTEL_EXPORTER_OTLP_PROTOCOL is "grpc": this program sends http/protobuf only`}},
		"tables that are missing": {shop(), with("ONCEBOX_SERVE_MIGRATE", "false", "ONCEBOX_DATABASE_URL", pgtest.Open(t).DSN),
			[]string{"lacks the migrations", "App.Migrate", "with ONCEBOX_SERVE_MIGRATE=true this process makes its tables"}},
		"tables of the service that are missing": {plain(func(s *serve.Service) {
			s.Setup = func(ctx context.Context, app *oncebox.App) (http.Handler, error) {
				_, err := app.UoW.DB(ctx).ExecContext(ctx, "SELECT FROM orders")
				return nil, err
			}
		}), with("ONCEBOX_SERVE_MIGRATE", "false", "ONCEBOX_DATABASE_URL", pgtest.Open(t).DSN), []string{"ONCEBOX_SERVE_MIGRATE=true"}},
		"a Configure that fails": {plain(func(s *serve.Service) {
			s.Configure = func(*config.Config, *serve.Config) error { return refused }
		}), base, []string{"Service.Configure: no such shop"}},
		"a Setup that fails": {plain(func(s *serve.Service) {
			s.Setup = func(context.Context, *oncebox.App) (http.Handler, error) { return nil, refused }
		}), base, []string{"Service.Setup: no such shop"}},
	} {
		t.Run(name, func(t *testing.T) {
			clean(t)
			for name, value := range c.vars {
				t.Setenv(name, value)
			}
			ctx, cancel := await.Context(t.Context(), t, "the service to refuse its settings") // a service that starts runs until it is stopped
			defer cancel()
			err := serve.Run(ctx, c.service)
			for _, says := range c.says {
				require.ErrorContains(t, err, says)
			}
			require.NotContains(t, err.Error(), "ann:y")
		})
	}
}

// A broker that is away at the start is waited for. Requests are answered meanwhile, and their events wait.
func TestBrokerThatComesLater(t *testing.T) {
	db, n := pgtest.Open(t), pulsartest.Open(t)
	link := linktest.New(t, n.URL)
	link.SetDown(true)
	vars := onPulsar(n, link.URL)
	vars["ONCEBOX_PULSAR_CLOSE_TIMEOUT"] = "1m"
	r := run(t, shop(), variables(t, db, vars))
	ready(t, r.url)
	status, body := do(t, http.MethodPost, r.url+"/orders/o-1", "Idempotency-Key", "k1")
	require.Equal(t, http.StatusCreated, status, body)
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM outbox_messages WHERE status = 'NEW'"))
	link.SetDown(false)
	await.True(t, func() bool { return count(t, db, "SELECT count(*) FROM handled") == 1 }, "the event to be handled")
	require.NoError(t, r.end())
}

// A database that is away at the start is waited for. The process is alive and not ready, and requests are asked to come again.
func TestDatabaseThatComesLater(t *testing.T) {
	link := linktest.New(t, pgtest.URL(t))
	link.SetDown(true)
	vars := variables(t, pgtest.Open(t), nil)
	vars["ONCEBOX_DATABASE_URL"] = link.URL
	p := launch(t, vars)
	url := p.url("addr")
	p.says("the database is away and is waited for")
	status, _ := do(t, http.MethodGet, url+"/healthz")
	require.Equal(t, http.StatusOK, status)
	for _, path := range []string{"/readyz", "/orders/o-1"} {
		status, _ := do(t, http.MethodGet, url+path)
		require.Equal(t, http.StatusServiceUnavailable, status, path)
	}
	link.SetDown(false)
	ready(t, url)
	status, body := do(t, http.MethodPost, url+"/orders/o-1", "Idempotency-Key", "k1")
	require.Equal(t, http.StatusCreated, status, body)
	p.signal()
	require.Zero(t, p.end(), p.log)
}

// A process that is stopped while it waits ends as if it had nothing else to do.
func TestStopWhileTheDatabaseIsAway(t *testing.T) {
	vars := variables(t, pgtest.Open(t), nil)
	vars["ONCEBOX_DATABASE_URL"] = "postgres://u@127.0.0.1:1/d"
	r, _ := begin(t, shop(), vars)
	require.NoError(t, r.end())
}
