package clients

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// service takes payments, of all that its clients may send.
type service struct {
	*httptest.Server

	t  *testing.T
	db *pgtest.DB
}

// newService serves a handler that pays. Around it is the middleware, and around that is outer. The handler writes an answer if answers returns true.
func newService(t *testing.T, cfg httpmw.IdempotencyConfig, outer func(http.Handler) http.Handler, answers func(r *http.Request) bool) *service {
	t.Helper()
	s := &service{t: t, db: pgtest.Migrated(t)}
	_, err := s.db.ExecContext(t.Context(), "CREATE TABLE payments (id bigserial PRIMARY KEY)")
	require.NoError(t, err)
	units := uow.New(s.db.DB, &uow.Config{Telemetry: telemetry.Config{Logger: slog.New(slog.DiscardHandler)}})
	cfg.Methods = []string{http.MethodPost, http.MethodPut}
	once := httpmw.Idempotency(units, idempotency.NewStore(&idempotency.Config{Schema: s.db.Schema}), func(*http.Request) (idempotency.Scope, error) {
		return idempotency.Anonymous("acme"), nil
	}, &cfg)
	r := chi.NewRouter()
	r.Use(outer)
	r.With(once).Handle("/*", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var id int64
		if err := units.DB(r.Context()).NewRaw("INSERT INTO payments DEFAULT VALUES RETURNING id").Scan(r.Context(), &id); err != nil {
			t.Error(err)
			return
		}
		if answers(r) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte(`{"id": "ch_` + strconv.FormatInt(id, 10) + `", "object": "charge"}`))
		}
	}))
	s.Server = httptest.NewUnstartedServer(r)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func (s *service) payments() (n int) {
	s.t.Helper()
	require.NoError(s.t, s.db.NewRaw("SELECT count(*) FROM payments").Scan(s.t.Context(), &n))
	return n
}

func passing(next http.Handler) http.Handler { return next }

func always(*http.Request) bool { return true }
