package httpmw_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/quietlog"
	"github.com/oncebox/oncebox/internal/unit"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

// service is a small payment service behind the middleware, on a real socket and a real database.
type service struct {
	t     *testing.T
	db    *pgtest.DB
	units *uow.Manager
	keys  *idempotency.Store
	cfg   httpmw.IdempotencyConfig
	sink  *sink

	pool       *bun.DB // of the units
	unitConfig uow.Config

	log    *safeBuffer
	reader *sdkmetric.ManualReader
	runs   atomic.Int64 // of the handler
	url    string
}

// sink takes the events of committed units.
type sink struct {
	mu        sync.Mutex
	committed []event.Envelope
	fail      error
}

const emit = "INSERT INTO emitted (id) VALUES ($1)"

func (s *sink) Flush(ctx context.Context, tx bun.IDB, evs []event.Envelope) error {
	for i := range evs {
		if _, err := tx.(bun.Tx).Tx.ExecContext(ctx, emit, evs[i].ID); err != nil {
			return err
		}
	}
	return s.failing()
}

// Enqueue has the events leave with the answer and COMMIT, where the connection can do that, as those of the outbox do.
func (s *sink) Enqueue(_ context.Context, _ bun.IDB, q *unit.Queue, evs []event.Envelope) error {
	for i := range evs {
		q.Queue(emit, evs[i].ID)
	}
	return s.failing()
}

func (s *sink) failing() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fail
}

func (s *sink) Committed(_ context.Context, evs []event.Envelope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.committed = append(s.committed, evs...)
}

func (s *sink) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.committed)
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func newService(t *testing.T) *service {
	t.Helper()
	return newServiceOn(t, pgtest.Migrated(t, pgtest.Outbox, pgtest.Idempotency))
}

// newServiceOn is newService on tables that may have served an earlier one. Nothing is left in them.
func newServiceOn(t *testing.T, db *pgtest.DB) *service {
	t.Helper()
	s := &service{t: t, db: db, sink: &sink{}, log: &safeBuffer{}, reader: sdkmetric.NewManualReader()}
	logger := quietlog.Every(slog.New(slog.NewTextHandler(s.log, nil)))
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(s.reader))
	_, err := s.db.ExecContext(t.Context(), `CREATE TABLE IF NOT EXISTS payments (id bigserial PRIMARY KEY, note text);
		CREATE TABLE IF NOT EXISTS emitted (id text PRIMARY KEY);
		TRUNCATE payments, emitted, idempotency_keys, idempotency_step RESTART IDENTITY CASCADE`)
	require.NoError(t, err)
	s.unitConfig = uow.Config{Source: "test", Retry: uow.RetryConfig{MaxElapsed: -1}, Telemetry: telemetry.Config{Logger: logger, MeterProvider: meters}}
	s.watch(nil)
	s.keys = idempotency.NewStore(&idempotency.Config{Schema: s.db.Schema, Telemetry: telemetry.Config{Logger: logger, MeterProvider: meters}})
	s.cfg = httpmw.IdempotencyConfig{Timeout: 10 * time.Minute, Telemetry: telemetry.Config{MeterProvider: meters}} // the logger is that of the units
	return s
}

// watch has the service use connections as config.OpenDB makes them, with a tracer.
func (s *service) watch(tracer pgx.QueryTracer) {
	s.t.Helper()
	cfg, err := pgx.ParseConfig(s.db.DSN)
	require.NoError(s.t, err)
	cfg.Tracer = tracer
	pool := sql.OpenDB(pgsql.NewConnector(*cfg))
	pool.SetMaxOpenConns(20) // as the pools of pgtest: other tests use the same server
	s.t.Cleanup(func() { require.NoError(s.t, pool.Close()) })
	s.pool = bun.NewDB(pool, pgdialect.New())
	s.units = uow.New(s.pool, &s.unitConfig, s.sink)
}

// byHeader takes tenant and principal from headers, as authentication would have put them there.
func byHeader(r *http.Request) (idempotency.Scope, error) {
	if r.Header.Get("X-Anonymous") != "" {
		return idempotency.Anonymous(r.Header.Get("X-Tenant")), nil
	}
	return idempotency.Scope{Tenant: r.Header.Get("X-Tenant"), Principal: r.Header.Get("X-Principal")}, nil
}

// middleware is the one under test, around a handler whose runs are counted.
func (s *service) middleware(next http.Handler) http.Handler {
	return httpmw.Idempotency(s.units, s.keys, byHeader, &s.cfg)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.runs.Add(1)
		next.ServeHTTP(w, r)
	}))
}

// start serves the handler behind the middleware.
func (s *service) start(h http.HandlerFunc) { s.serve(s.middleware(h)) }

func (s *service) serve(h http.Handler) {
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.Start()
	s.t.Cleanup(server.Close)
	s.url = server.URL
}

// pay is a handler that inserts a payment, emits an event, and answers with the payment's number.
func (s *service) pay(w http.ResponseWriter, r *http.Request) {
	id, err := s.insert(r.Context())
	if err != nil {
		http.Error(w, "failed", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"id": %d}`, id)
}

func (s *service) insert(ctx context.Context) (id int64, err error) {
	err = s.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		if err := u.Add("payment", json.RawMessage(`{}`)); err != nil {
			return err
		}
		return u.DB().QueryRowContext(ctx, "INSERT INTO payments DEFAULT VALUES RETURNING id").Scan(&id)
	})
	return id, err
}

// reply is an answer that was read to its end.
type reply struct {
	status int
	header http.Header
	body   string
}

func (r reply) problem(t *testing.T) (kind string, retryable bool) {
	t.Helper()
	require.Equal(t, "application/problem+json", r.header.Get("Content-Type"), "%d %s", r.status, r.body)
	var p struct {
		Type      string `json:"type"`
		Title     string `json:"title"`
		Status    int    `json:"status"`
		Retryable bool   `json:"retryable"`
	}
	require.NoError(t, json.Unmarshal([]byte(r.body), &p))
	require.Equal(t, r.status, p.Status)
	require.NotEmpty(t, p.Title)
	kind, found := strings.CutPrefix(p.Type, "/problems/")
	require.True(t, found, p.Type)
	return kind, p.Retryable
}

// noError is require.NoError for handlers: they run in goroutines that must not end the test.
func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// timeOut sends a request with a timeout that ends in its handler, which waits for that. A timeout that has ended before is followed
// by a timeout that is twice as long, with another key. Then there is none any more.
func (s *service) timeOut(h http.HandlerFunc) (key string, got reply) {
	s.t.Helper()
	for s.cfg.Timeout = 200 * time.Millisecond; s.runs.Load() == 0; s.cfg.Timeout *= 2 {
		key = "within " + s.cfg.Timeout.String()
		s.start(h)
		got = s.post(`"`+key+`"`, "{}")
	}
	s.cfg.Timeout = 10 * time.Minute
	return `"` + key + `"`, got
}

type change func(*http.Request)

func header(name string, values ...string) change {
	return func(r *http.Request) { r.Header[name] = values }
}

func at(path string) change { return func(r *http.Request) { r.URL.Path = path } }

func method(m string) change { return func(r *http.Request) { r.Method = m } }

// request makes a POST of u1 with the key; "" sends none.
func (s *service) request(key, body string, changes ...change) *http.Request {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+"/payments", strings.NewReader(body))
	require.NoError(s.t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Principal", "u1")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	for _, c := range changes {
		c(r)
	}
	return r
}

func (s *service) post(key, body string, changes ...change) reply {
	s.t.Helper()
	got, err := send(s.request(key, body, changes...))
	require.NoError(s.t, err)
	return got
}

// send uses a connection of its own: nothing is left of it for other tests.
func send(r *http.Request) (reply, error) {
	transport := &http.Transport{DisableCompression: true}
	defer transport.CloseIdleConnections()
	return sendOn(transport, r)
}

func sendOn(transport *http.Transport, r *http.Request) (reply, error) {
	resp, err := transport.RoundTrip(r) // as it is: no redirects
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(body)}, err
}

func (s *service) count(query string) int {
	s.t.Helper()
	var n int
	require.NoError(s.t, s.db.QueryRowContext(context.WithoutCancel(s.t.Context()), query).Scan(&n))
	return n
}

func (s *service) payments() int { return s.count("SELECT count(*) FROM payments") }

// emitted are the events that were committed.
func (s *service) emitted() int { return s.count("SELECT count(*) FROM emitted") }

func (s *service) stored() int { return s.count("SELECT count(*) FROM idempotency_keys") }

// counter sums a metric by its attribute "outcome", and leaves out sums that are 0.
func (s *service) counter(name string) map[string]int64 {
	s.t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(s.t, s.reader.Collect(s.t.Context(), &all))
	sums := map[string]int64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if data, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == name {
				for _, p := range data.DataPoints {
					if outcome, _ := p.Attributes.Value(attribute.Key("outcome")); p.Value > 0 {
						sums[outcome.AsString()] += p.Value
					}
				}
			}
		}
	}
	return sums
}
