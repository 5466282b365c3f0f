package httpmwtest

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/httpmw/policy"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/unit"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

// service does all that the suite can ask for. Nothing is wrong with it but its fault.
type service struct {
	db    *pgtest.DB
	pool  string // how connections are made, see newService
	units *uow.Manager
	quiet *slog.Logger
	fault fault

	mu   sync.Mutex
	runs map[string]int // by path and key
}

// fault is what is wrong with a service. A nil field: nothing is.
type fault struct {
	// front stands before the service, as a proxy does, and undoes a rule.
	front func(s *service, next http.Handler) http.Handler
	// inside stands before the handlers, behind the middleware.
	inside func(s *service, next http.Handler) http.Handler
	config func(*httpmw.IdempotencyConfig)
	store  func(*idempotency.Config)
	scope  func(*http.Request, *idempotency.Scope)
}

const (
	maxBody   = 4 << 10
	maxAnswer = 1 << 10
	maxHeld   = 2 << 10
	minKey    = 20
	slowness  = 100 * time.Millisecond // the suite tries until it meets such a request in flight

	extraHeader = "X-Payment-State"
	noTenant    = "-"
)

// pools are the ways of making connections: as config.OpenDB does, as it does behind a transaction-mode pooler, and as everybody does.
func pools() []string { return []string{"pipelined", "pooled", "plain"} }

func newService(t *testing.T, pool string) *service {
	t.Helper()
	s := &service{db: pgtest.Migrated(t, pgtest.Outbox, pgtest.Idempotency), quiet: slog.New(slog.DiscardHandler), pool: pool}
	for _, statement := range []string{
		"CREATE SEQUENCE executions", // counts rolled back executions as well
		"CREATE TABLE payments (id bigint PRIMARY KEY)",
		"CREATE TABLE invoices (payment bigint REFERENCES payments DEFERRABLE INITIALLY DEFERRED)",
		"CREATE TABLE emitted (id text PRIMARY KEY)",
	} {
		_, err := s.db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	s.units = uow.New(s.open(t), &uow.Config{Source: "test", Telemetry: telemetry.Config{Logger: s.quiet}}, sink{})
	return s
}

func (s *service) open(t *testing.T) *bun.DB {
	t.Helper()
	dsn := s.db.DSN
	if s.pool == "pooled" {
		dsn = s.db.Pooled(t).DSN
	}
	cfg, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	connector := stdlib.GetConnector(*cfg)
	if s.pool == "pipelined" {
		connector = pgsql.NewConnector(*cfg)
	}
	pool := sql.OpenDB(connector)
	pool.SetMaxOpenConns(20)
	t.Cleanup(func() { _ = pool.Close() })
	return bun.NewDB(pool, pgdialect.New())
}

// sink stores events, together with COMMIT where the connection can do that.
type sink struct{}

const emit = "INSERT INTO emitted (id) VALUES ($1)"

func (sink) Flush(ctx context.Context, tx bun.IDB, evs []event.Envelope) error {
	for i := range evs {
		if _, err := tx.NewRaw("INSERT INTO emitted (id) VALUES (?)", evs[i].ID).Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (sink) Enqueue(_ context.Context, _ bun.IDB, q *unit.Queue, evs []event.Envelope) error {
	for i := range evs {
		q.Queue(emit, evs[i].ID)
	}
	return nil
}

// start serves it with a fault, on a socket of its own, until the test ends.
func (s *service) start(t *testing.T, f fault) Target {
	t.Helper()
	// One of its own: requests to another one may still be on their way.
	s = &service{db: s.db, pool: s.pool, units: s.units, quiet: s.quiet, fault: f, runs: map[string]int{}}
	h := s.routes(t)
	if f.front != nil {
		h = f.front(s, h)
	}
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.Start()
	t.Cleanup(server.Close)
	return s.describe(server.URL)
}

func (s *service) routes(t *testing.T) http.Handler {
	t.Helper()
	closed, err := sql.Open("pgx", s.db.DSN)
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	nowhere := uow.New(bun.NewDB(closed, pgdialect.New()), &uow.Config{Telemetry: telemetry.Config{Logger: s.quiet}})

	once := s.middleware(s.units, time.Hour, nil)
	r := chi.NewRouter()
	r.Use(authenticate)
	for _, method := range []string{http.MethodPost, http.MethodPatch, http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete, http.MethodOptions} {
		r.With(once).MethodFunc(method, "/payments", s.pay(http.StatusCreated))
	}
	r.With(once).Post("/refunds", s.pay(http.StatusCreated))
	r.With(s.middleware(s.units, time.Hour, func(c *httpmw.IdempotencyConfig) { c.Required = false })).Post("/optional", s.pay(http.StatusCreated))
	r.With(once).Post("/rich", s.rich)
	r.With(compress, once).Post("/compressed", s.pay(http.StatusCreated))
	r.With(once).Post("/status/{code}", func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(chi.URLParam(r, "code"))
		s.pay(code)(w, r)
	})
	r.With(once).Post("/large", s.sized(maxAnswer+1))
	r.With(once).Post("/huge", s.sized(maxHeld+1))
	r.With(once).Post("/trailers", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Digest")
		s.pay(http.StatusCreated)(w, r)
		w.Header().Set("Digest", "sha-256=")
	})
	r.With(once).Post("/panics", s.firstly(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	r.With(once).Post("/aborts", s.firstly(func(w http.ResponseWriter, r *http.Request) {
		_, _ = s.units.DB(r.Context()).ExecContext(r.Context(), "INSERT INTO invoices (payment) VALUES (-1)") // COMMIT looks for the payment
		w.WriteHeader(http.StatusCreated)
	}))
	conflict := s.firstly(func(w http.ResponseWriter, r *http.Request) {
		_ = s.units.Do(r.Context(), func(context.Context, *uow.Unit) error { return uow.ErrConflict })
		http.Error(w, "conflict", http.StatusConflict)
	})
	r.With(once).Post("/conflicts", conflict)
	with := func(change func(*httpmw.IdempotencyConfig)) chi.Router {
		return r.With(s.middleware(s.units, time.Hour, change))
	}
	with(func(c *httpmw.IdempotencyConfig) { c.RunOnce = true }).Post("/runs-once", conflict)
	opted := with(func(c *httpmw.IdempotencyConfig) { c.Methods = []string{http.MethodPut, http.MethodDelete} })
	opted.Put("/opted", s.pay(http.StatusOK))
	opted.Delete("/opted", s.pay(http.StatusAccepted))
	with(func(c *httpmw.IdempotencyConfig) { c.Headers = []string{extraHeader} }).Post("/extra", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(extraHeader, newKey())
		s.pay(http.StatusCreated)(w, r)
	})
	with(func(c *httpmw.IdempotencyConfig) { c.MinKey = minKey }).Post("/long-keys", s.pay(http.StatusCreated))
	with(func(c *httpmw.IdempotencyConfig) {
		c.APIVersion = func(r *http.Request) string { return r.Header.Get("X-Version") }
	}).Post("/versioned", s.pay(http.StatusCreated))
	with(func(c *httpmw.IdempotencyConfig) { c.RequireTenant = true }).Post("/tenants", s.pay(http.StatusCreated))
	r.With(once).Post("/conditional", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-Match") == "" {
			http.Error(w, "say which version", http.StatusPreconditionRequired)
			return
		}
		s.pay(http.StatusCreated)(w, r)
	})
	slow := func(w http.ResponseWriter, r *http.Request) {
		<-time.After(slowness)
		s.pay(http.StatusCreated)(w, r)
	}
	r.With(once).Post("/slow", slow)
	lease := func(c *httpmw.IdempotencyConfig) { c.Lease = &httpmw.LeaseConfig{} }
	r.With(s.middleware(s.units, time.Hour, func(c *httpmw.IdempotencyConfig) { c.Wait = time.Minute })).Post("/waits", slow)
	r.With(s.middleware(s.units, time.Hour, lease)).Post("/leased", slow)
	with(lease).Post("/unknown", s.doubtful)
	with(func(c *httpmw.IdempotencyConfig) { c.Wait = slowness / 6 }).Post("/impatient", slow)
	with(lease).Post("/taken-over", s.lost)
	with(func(c *httpmw.IdempotencyConfig) {
		c.Lease = &httpmw.LeaseConfig{Recover: func(context.Context, *http.Request, idempotency.Unknown) (idempotency.Outcome, error) {
			return idempotency.StepDone(1), nil
		}}
	}).Post("/recovers", s.doubtful)
	r.Get("/count", func(w http.ResponseWriter, _ *http.Request) {
		n, _ := s.effects()
		_, _ = fmt.Fprintf(w, `{"payments": [{"committed": %d}]}`, n)
	})
	r.With(s.middleware(s.units, time.Hour, func(c *httpmw.IdempotencyConfig) { c.Exclude = []string{"/to/name"} })).
		Post("/excludes", s.pay(http.StatusCreated))
	r.With(s.middleware(s.units, time.Hour, func(c *httpmw.IdempotencyConfig) {
		c.Keep = func(int) bool { return true }
	})).Post("/keeps", s.pay(http.StatusInternalServerError))
	r.With(s.middleware(s.units, time.Hour, func(c *httpmw.IdempotencyConfig) { c.StrictKey = true })).Post("/strict", s.pay(http.StatusCreated))
	r.Mount("/problems/", policy.Handler(idempotency.NewStore(nil), &httpmw.IdempotencyConfig{Required: true}))
	r.With(s.middleware(nowhere, time.Hour, nil)).Post("/down", s.pay(http.StatusCreated))
	r.With(s.middleware(s.units, time.Second, nil)).Post("/expires", s.pay(http.StatusCreated))
	return r
}

func (s *service) middleware(units *uow.Manager, ttl time.Duration, change func(*httpmw.IdempotencyConfig)) func(http.Handler) http.Handler {
	store := idempotency.Config{Schema: s.db.Schema, Telemetry: telemetry.Config{Logger: s.quiet}, TTL: ttl, Pooler: s.pool == "pooled"}
	cfg := httpmw.IdempotencyConfig{Required: true, MaxBody: maxBody, MaxAnswer: maxAnswer, MaxHeld: maxHeld, Telemetry: telemetry.Config{Logger: s.quiet}}
	if change != nil {
		change(&cfg)
	}
	if s.fault.config != nil {
		s.fault.config(&cfg)
	}
	if s.fault.store != nil {
		s.fault.store(&store)
	}
	once := httpmw.Idempotency(units, idempotency.NewStore(&store), func(r *http.Request) (idempotency.Scope, error) {
		tenant, principal, _ := caller(r)
		scope := idempotency.Scope{Tenant: tenant, Principal: principal}
		if tenant == noTenant {
			scope.Tenant = ""
		}
		if s.fault.scope != nil {
			s.fault.scope(r, &scope)
		}
		return scope, nil
	}, &cfg)
	return func(next http.Handler) http.Handler {
		if s.fault.inside != nil {
			next = s.fault.inside(s, next)
		}
		return once(next)
	}
}

// caller reads "Bearer tenant principal token".
func caller(r *http.Request) (tenant, principal, token string) {
	if words := strings.Fields(r.Header.Get("Authorization")); len(words) == 4 {
		return words[1], words[2], words[3]
	}
	return "", "", ""
}

// authenticate refuses callers without rights. A caller without credentials may ask, and is a matter of the middleware.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, principal, _ := caller(r); principal == "stranger" {
			http.Error(w, "you may not", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// pay inserts a payment, and answers with its number.
func (s *service) pay(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id, err := s.insert(r.Context())
		if err != nil {
			http.Error(w, "failed", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Location", fmt.Sprintf("/payments/%d", id))
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"id": %d}`, id)
	}
}

func (s *service) insert(ctx context.Context) (id int64, err error) {
	err = s.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		if err := u.Add("payment", json.RawMessage(`{}`)); err != nil {
			return err
		}
		return u.DB().QueryRowContext(ctx, "INSERT INTO payments VALUES (nextval('executions')) RETURNING id").Scan(&id)
	})
	return id, err
}

func (s *service) rich(w http.ResponseWriter, r *http.Request) {
	for name, value := range map[string]string{
		"Accept": "application/json", "Accept-Patch": "application/merge-patch+json", "Accept-Post": "application/json", "Allow": "POST",
		"Cache-Control": "private, max-age=60", "Content-Disposition": "inline", "Expires": "Sat, 01 Jan 2000 00:00:00 GMT",
		"Preference-Applied": "return=minimal", "Repr-Digest": "sha-256=:AA==:", "Vary": "Accept",
		"Content-Encoding": "identity", "Content-Language": "en", "Content-Location": "/payments", "Etag": `"1"`,
		"Last-Modified": "Sat, 01 Jan 2000 00:00:00 GMT", "Link": "</a>; rel=self", "Www-Authenticate": "Basic", "Set-Cookie": "session=" + newKey(),
		"X-Request-Id": newKey(), "Idempotent-Replayed": "true",
	} {
		w.Header().Set(name, value)
	}
	w.Header().Add("Link", "</b>; rel=next")
	s.pay(http.StatusAccepted)(w, r)
}

func (s *service) sized(n int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.pay(http.StatusCreated)(w, r)
		_, _ = io.WriteString(w, strings.Repeat("x", n))
	}
}

// firstly does something else when a key comes to a handler for the first time.
func (s *service) firstly(other http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.nth(r) == 1 {
			if _, err := s.insert(r.Context()); err == nil {
				other(w, r)
			}
			return
		}
		s.pay(http.StatusCreated)(w, r)
	}
}

// lost is a handler whose process is lost when a key comes to it for the first time: another one has taken over, and died as well.
func (s *service) lost(w http.ResponseWriter, r *http.Request) {
	if s.nth(r) > 1 {
		s.pay(http.StatusCreated)(w, r)
		return
	}
	s.exec(`UPDATE idempotency_keys SET owner = gen_random_uuid(), epoch = epoch + 1,
		locked_until = clock_timestamp() + interval '600 ms' WHERE state = 'claimed'`)
}

// exec is for handlers and proxies, in whose goroutines no test can be ended.
func (s *service) exec(statement string) {
	if _, err := s.db.ExecContext(context.Background(), statement); err != nil {
		panic(err)
	}
}

// resolve says that all steps with an unknown outcome were done.
func (s *service) resolve() error {
	store := idempotency.NewStore(&idempotency.Config{Schema: s.db.Schema})
	unknown, err := store.Unknown(context.Background(), s.db.DB, "", 100)
	for _, u := range unknown {
		if _, resolveErr := store.Resolve(context.Background(), s.db.DB, u, idempotency.StepDone(1)); resolveErr != nil {
			return resolveErr
		}
	}
	return err
}

// doubtful fails in the middle of a step that must not be done twice, and goes on when it is known that it was done.
func (s *service) doubtful(w http.ResponseWriter, r *http.Request) {
	_, err := idempotency.StepOnce(r.Context(), "pay", func(ctx context.Context) (int64, error) {
		_, err := s.insert(ctx)
		return 0, errors.Join(err, errors.New("the answer was lost"))
	})
	if err == nil {
		w.WriteHeader(http.StatusCreated)
		return
	}
	http.Error(w, fmt.Sprint("sorry: ", err != nil), http.StatusBadGateway)
}

// nth counts the executions of a key.
func (s *service) nth(r *http.Request) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := r.URL.Path + " " + r.Header.Get("Idempotency-Key")
	s.runs[name]++
	return s.runs[name]
}

func (s *service) effects() (n int, err error) {
	err = s.db.QueryRowContext(context.Background(), "SELECT count(*) FROM payments").Scan(&n)
	return n, err
}

// describe returns the description that a service gives of itself.
func (s *service) describe(url string) Target {
	as := func(words string) map[string]string { return map[string]string{"Authorization": "Bearer " + words} }
	at := func(method, path string) *Request {
		q := Request{Method: method, Path: path, Header: as("acme u1 token-1"), Body: `{"amount": 1, "to": {"iban": "a", "name": "b"}}`}
		return &q
	}
	post := func(path string) *Request { return at(http.MethodPost, path) }
	t := Target{
		URL: url, Create: *post("/payments"), ChangedBody: `{"amount": 2, "to": {"iban": "a", "name": "b"}}`,
		Distinct: true, Effects: s.effects,
		Required: post("/payments"), Optional: post("/optional"),
		Elsewhere: []Request{*post("/refunds"), *at(http.MethodPatch, "/payments")},
		Refreshed: as("acme u1 token-2"), Nobody: as(""), Stranger: as("acme stranger token-3"),
		Rich: post("/rich"), Compressed: post("/compressed"),
		Slow: post("/slow"), Large: post("/large"), NotHeld: []Request{*post("/huge"), *post("/trailers")}, MaxBody: maxBody,
		Panics: post("/panics"), Aborts: post("/aborts"), Conflicts: post("/conflicts"), Down: post("/down"), Expires: post("/expires"),
		Waits: post("/waits"), Leased: post("/leased"), Unknown: post("/unknown"), Keeps: post("/keeps"), Strict: post("/strict"), Published: true,
		Keyed: []Request{*at(http.MethodPatch, "/payments"), *at(http.MethodPut, "/opted"), *at(http.MethodDelete, "/opted")},
		Extra: post("/extra"), ExtraHeaders: []string{extraHeader}, LongKeys: post("/long-keys"), MinKey: minKey,
		Versioned: post("/versioned"), OtherVersion: map[string]string{"X-Version": "2"}, RunsOnce: post("/runs-once"),
		Impatient: post("/impatient"), TakenOver: post("/taken-over"), Recovers: post("/recovers"), Resolve: s.resolve,
		Conditional: post("/conditional"), Precondition: map[string]string{"If-Match": `"1"`},
		Excludes: post("/excludes"), ExcludedBody: `{"amount": 1, "to": {"iban": "a", "name": "c"}}`,
		Answers: map[int]Request{},
	}
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete, http.MethodOptions} {
		t.Untouched = append(t.Untouched, *at(method, "/payments"))
	}
	nobodys := post("/tenants").with(as(noTenant + " u1 token-1"))
	t.NoTenant = &nobodys
	for _, tenant := range []string{"acme", "bolt"} {
		for _, principal := range []string{"u1", "u2", "u3"} {
			t.Callers = append(t.Callers, as(tenant+" "+principal+" token"))
		}
	}
	for _, status := range []int{
		200, 201, 202, 206, 301, 303, 400, 402, 404, 410, 415, 422, 451,
		401, 403, 407, 408, 409, 412, 421, 423, 425, 426, 428, 429, 500, 502, 503, 504,
	} {
		t.Answers[status] = *post(fmt.Sprintf("/status/%d", status))
	}
	return t.withDefaults()
}
