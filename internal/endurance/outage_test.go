//go:build unix && nightly

package endurance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/devenv"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

const (
	// outageLasts is how long an outage is. It is the figure of the promise, and so it is waited for by the clock.
	outageLasts = 100 * time.Second
	// mostLines is how many lines of ours, and of the client's, a process may write about it.
	mostLines = 10
	// settled is for how long a log must have been silent for its outage to be over: longer than a group needs.
	settled = 150 * time.Second
	// manyKeys is how many keys have messages while the outage lasts.
	manyKeys = 400
)

// serve is a service as users write it, with what its log says by default: HTTP, a relay, and two consumers.
func (t *task) serve(ctx context.Context) (err error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	cfg := config.Config{DatabaseURL: t.Database, Telemetry: telemetry.Config{Logger: log}, UoW: uow.Config{Source: "endurance"}}
	db, err := config.OpenDB(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	broker, err := pulsar.Connect(ctx, &pulsar.Config{URL: t.Pulsar, AdminURL: t.Admin, Name: t.Name, Telemetry: telemetry.Config{Logger: log}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, broker.Close()) }()
	app, err := oncebox.New(db, broker, cfg)
	if err != nil {
		return err
	}
	app.Consume(t.Topic, "writer", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		return writeDown(ctx, app.UoW, "writer", m)
	}))
	app.Consume(t.Topic, "caller", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		if err := call(ctx, t.Dependency); err != nil {
			return err
		}
		return writeDown(ctx, app.UoW, "caller", m)
	}))
	if !t.Relay {
		return app.Run(ctx, oncebox.Consumers)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: t.routes(app), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	if _, err := fmt.Fprintf(os.Stdout, "http://%s\n", listener.Addr()); err != nil {
		return err
	}
	return app.Run(ctx)
}

func writeDown(ctx context.Context, units *uow.Manager, consumer string, m *messaging.Message) error {
	_, err := units.DB(ctx).NewRaw("INSERT INTO seen (consumer, id) VALUES (?, ?)", consumer, m.ID).Exec(ctx)
	return err
}

// call asks a service that the handler needs.
func call(ctx context.Context, address string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// routes places an order, with a key and without one.
func (t *task) routes(app *oncebox.App) http.Handler {
	place := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, within := uow.FromContext(r.Context())
		if !within {
			panic("there is no unit")
		}
		if err := u.Add(t.Topic, []byte("{}"), event.WithType("placed"), event.WithOrderingKey(r.URL.Query().Get("key"))); err != nil {
			http.Error(w, "sorry", http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
	})
	anybody := func(*http.Request) (idempotency.Scope, error) { return idempotency.Anonymous(""), nil }
	mux := http.NewServeMux()
	mux.Handle("POST /orders", httpmw.Idempotency(app.UoW, app.Idempotency, anybody, nil)(place))
	mux.Handle("POST /plain", httpmw.UnitOfWork(app.UoW)(place))
	return mux
}

// lines is a log whose lines are counted.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
	last time.Time
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = time.Now()
	return l.text.Write(p)
}

// since returns what was written from a place on, and the place of the next line.
func (l *lines) since(at int) (text string, end int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()[at:], l.text.Len()
}

func (l *lines) silent() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.last)
}

// town is two processes with all that they need, which can be away.
type town struct {
	t          *testing.T
	db         *pgtest.DB
	postgres   *toxiproxy.Proxy
	pulsar     *devenv.PulsarServer
	dependency *toxiproxy.Proxy
	url        string // of the service
	logs       map[string]*lines
	asked      atomic.Int64
	taken      atomic.Int64
}

func newTown(t *testing.T) *town {
	t.Helper()
	broker, err := devenv.Pulsar(t.Context(), &devenv.Options{Own: true, Volatile: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, broker.Stop()) })
	w := &town{t: t, db: pgtest.Migrated(t), pulsar: broker, logs: map[string]*lines{}}
	_, err = w.db.ExecContext(t.Context(), "CREATE TABLE seen (consumer text, id text, PRIMARY KEY (consumer, id))")
	require.NoError(t, err)
	dsn, err := url.Parse(w.db.DSN)
	require.NoError(t, err)
	w.postgres = w.proxy(dsn.Host)
	dsn.Host = w.postgres.Listen
	needed := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(needed.Close)
	w.dependency = w.proxy(needed.Listener.Addr().String())
	do := task{
		Database: dsn.String(), Pulsar: broker.URL, Admin: broker.AdminURL, Topic: "orders", Serves: true, Dependency: "http://" + w.dependency.Listen,
	}
	all, consumers := do, do
	all.Name, all.Relay, consumers.Name = "all", true, "consumers"
	w.logs["all"], w.logs["consumers"] = &lines{}, &lines{}
	said := make(chan string, 1)
	startTo(t, all, writer(func(p []byte) { said <- strings.TrimSpace(string(p)) }), w.logs["all"])
	w.url = await.Receive(t, said, "the service listens")
	startTo(t, consumers, io.Discard, w.logs["consumers"])
	return w
}

type writer func([]byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}

func (w *town) proxy(to string) *toxiproxy.Proxy {
	w.t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	p := toxiproxy.NewProxy(server, "proxy", "127.0.0.1:0", to)
	require.NoError(w.t, p.Start())
	w.t.Cleanup(p.Stop)
	return p
}

// refuse makes a proxy break and refuse connections, and swallow makes it keep them and let nothing pass. The returned function mends it.
func (w *town) refuse(p *toxiproxy.Proxy) (mend func()) {
	listens := p.Listen
	p.Stop()
	return func() {
		p.Listen = listens
		require.NoError(w.t, p.Start())
	}
}

func (w *town) swallow(p *toxiproxy.Proxy) (mend func()) {
	for _, direction := range []string{"upstream", "downstream"} {
		_, err := p.Toxics.AddToxicJson(strings.NewReader(
			fmt.Sprintf(`{"name":%q,"type":"timeout","stream":%q,"attributes":{"timeout":0}}`, direction, direction)))
		require.NoError(w.t, err)
	}
	return func() { p.Toxics.ResetToxics(context.Background()) }
}

// load has clients place orders, half of them with a key, until ctx is done.
func (w *town) load(ctx context.Context) {
	pace := time.NewTicker(time.Second / ordersPerSecond)
	defer pace.Stop()
	var ordering sync.WaitGroup
	for range clients {
		ordering.Go(func() {
			for ctx.Err() == nil {
				select {
				case <-pace.C:
					w.order(ctx)
				case <-ctx.Done():
				}
			}
		})
	}
	ordering.Wait()
}

func (w *town) order(ctx context.Context) {
	n, path := w.asked.Add(1), "/plain"
	if n%2 == 0 {
		path = "/orders"
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("%s%s?key=k%d", w.url, path, n%manyKeys), nil)
	require.NoError(w.t, err)
	req.Header.Set("Idempotency-Key", fmt.Sprintf(`"%d"`, n))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return
	}
	_ = resp.Body.Close()
	if resp.StatusCode == http.StatusCreated {
		w.taken.Add(1)
	}
}

// drained waits until both consumers have handled each event.
func (w *town) drained() {
	w.t.Helper()
	await.True(w.t, seldom(func() bool {
		var left int
		err := w.db.NewRaw(`SELECT (SELECT count(*) FROM outbox_unsent) + (SELECT 2 * count(*) FROM outbox_messages) - (SELECT count(*) FROM seen)`).
			Scan(w.t.Context(), &left)
		return err == nil && left == 0
	}), "all is handled")
}

// repeats reports whether a line of a log stands for several failures. Such a line has a last one; a failure that came once has none.
func repeats(text string) bool {
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "level=INFO") && strings.Contains(line, "repeated.lines=") {
			return true
		}
	}
	return false
}

// Whatever is away for a hundred seconds, under load: each process writes ten lines of its own about it at most, and ten of Pulsar's client's.
func TestOutageOfAHundredSecondsIsTenLines(t *testing.T) {
	t.Parallel() // beside TestDatabaseIsRestoredUnderProjectors: it waits for half an hour, on servers of its own
	w := newTown(t)
	for range manyKeys {
		w.order(t.Context())
	}
	w.drained()
	for _, c := range []struct {
		name  string
		begin func() (end func())
	}{
		{"broker stopped", func() func() {
			require.NoError(t, w.pulsar.Kill())
			return func() { require.NoError(t, w.pulsar.Restart(t.Context())) }
		}},
		{"broker frozen", func() func() {
			require.NoError(t, w.pulsar.Signal(syscall.SIGSTOP))
			return func() { require.NoError(t, w.pulsar.Signal(syscall.SIGCONT)) }
		}},
		{"database refuses", func() func() { return w.refuse(w.postgres) }},
		{"database silent", func() func() { return w.swallow(w.postgres) }},
		{"dependency refuses", func() func() { return w.refuse(w.dependency) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			for name, l := range w.logs {
				await.True(t, seldom(func() bool { return l.silent() > settled }), "%s has nothing to say", name)
			}
			from := map[string]int{}
			for name, l := range w.logs {
				_, from[name] = l.since(0)
			}
			asked, taken := w.asked.Load(), w.taken.Load()
			began, end := time.Now(), c.begin()
			outage, cancel := context.WithTimeout(t.Context(), outageLasts) // by the clock, on purpose
			w.load(outage)
			cancel()
			end()
			// A broker takes its time to start, which is longer on a busy machine: a line a minute for each level.
			more := 2 * int((time.Since(began)-outageLasts).Round(time.Minute)/time.Minute)
			w.drained()
			for name, l := range w.logs {
				await.True(t, seldom(func() bool { return l.silent() > settled }), "%s has said all about it", name)
				text, _ := l.since(from[name])
				ours, client, all := strings.Count(text, `msg="oncebox: `), strings.Count(text, `msg="Pulsar's client: `), strings.Count(text, "\n")
				t.Logf("outage %q process=%s requests=%d taken=%d lines of ours=%d of the client=%d", c.name, name,
					w.asked.Load()-asked, w.taken.Load()-taken, ours, client)
				t.Log("\n" + text)
				require.LessOrEqual(t, ours, mostLines+more)
				require.LessOrEqual(t, client, mostLines+more)
				require.Equal(t, all, ours+client, "a line of nobody's")
				require.True(t, !repeats(text) || strings.Contains(text, "not seen for a while"), "a reader learns that it is over")
			}
		})
	}
}
