package routers

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/quietlog"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

// TestMain leaves out the clock of fasthttp, which runs for ever.
func TestMain(m *testing.M) {
	pgtest.MainIgnoring(m, []goleak.Option{goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1")})
}

var errBank = errors.New("the bank said no")

// service is what the cells of the matrix share.
type service struct {
	db    *pgtest.DB
	units *uow.Manager
	keys  *idempotency.Store
	log   *lines
	late  atomic.Pointer[func()] // is written when the middleware has returned
}

// lines are what was logged since they were emptied.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.b.Reset()
	return l.b.String()
}

func newService(t *testing.T) *service {
	t.Helper()
	db := pgtest.Migrated(t)
	_, err := db.ExecContext(t.Context(), "CREATE TABLE payments (cell text)")
	require.NoError(t, err)
	s := &service{db: db, log: &lines{}}
	s.units = uow.New(db.DB, &uow.Config{Telemetry: telemetry.Config{Logger: quietlog.Every(slog.New(slog.NewTextHandler(s.log, nil)))}})
	s.keys = idempotency.NewStore(&idempotency.Config{Schema: db.Schema})
	return s
}

func (s *service) once() Middleware {
	return httpmw.Idempotency(s.units, s.keys, func(*http.Request) (idempotency.Scope, error) { return idempotency.Anonymous("acme"), nil }, nil)
}

func (s *service) pay(ctx context.Context, cell string) error {
	_, err := s.units.DB(ctx).NewRaw("INSERT INTO payments VALUES (?)", cell).Exec(ctx)
	return err
}

func (s *service) rows(t *testing.T, cell string) (n int) {
	t.Helper()
	require.NoError(t, s.db.NewRaw("SELECT count(*) FROM payments WHERE cell = ?", cell).Scan(t.Context(), &n))
	return n
}

// runLate writes what was put off, as code further out does.
func (s *service) runLate() {
	if late := s.late.Swap(nil); late != nil {
		(*late)()
	}
}

// serve serves a handler of net/http, and what was put off after it.
func (s *service) serve(t *testing.T, h http.Handler) (url string) {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer s.runLate()
		h.ServeHTTP(w, r)
	}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// told holds the answer that a client got.
type told struct {
	status   int // 0: the connection broke
	replayed bool
}

func (d told) success() bool { return d.status > 0 && d.status < http.StatusBadRequest }

func post(t *testing.T, url, key string) told {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/pay", strings.NewReader(`{"amount": 1}`))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return told{}
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(resp.Body); err != nil {
		return told{}
	}
	return told{resp.StatusCode, resp.Header.Get("Idempotent-Replayed") == "true"}
}
