package httpmw_test

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/uow"
)

const unused = "a handler succeeded without using its unit of work"

// The handlers, by what they do before they answer 201.
func TestHandlerThatHasNotUsedItsUnitIsLogged(t *testing.T) {
	s := newService(t)
	elsewhere := func(_ http.ResponseWriter, r *http.Request) { // a pool of its own: this row survives a rollback
		_, err := s.db.ExecContext(r.Context(), "INSERT INTO payments DEFAULT VALUES")
		noError(t, err)
	}
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    int
		change  func(*httpmw.IdempotencyConfig)
	}{
		"a pool of its own": {handler: elsewhere, want: 1},
		"on purpose":        {handler: elsewhere, change: func(cfg *httpmw.IdempotencyConfig) { cfg.WithoutUnit = true }},
		"under a lease":     {handler: elsewhere, change: func(cfg *httpmw.IdempotencyConfig) { cfg.Lease = &httpmw.LeaseConfig{} }},
		"refused":           {handler: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusUnprocessableEntity) }},
		"units.Do": {handler: func(_ http.ResponseWriter, r *http.Request) {
			_, err := s.insert(r.Context())
			noError(t, err)
		}},
		"units.DB": {handler: func(_ http.ResponseWriter, r *http.Request) {
			_, err := s.units.DB(r.Context()).NewRaw("INSERT INTO payments DEFAULT VALUES").Exec(r.Context())
			noError(t, err)
		}},
		"FromContext": {handler: func(_ http.ResponseWriter, r *http.Request) {
			u, ok := uow.FromContext(r.Context())
			if !ok {
				t.Error("no unit")
				return
			}
			_, err := u.SQL().ExecContext(r.Context(), "INSERT INTO payments DEFAULT VALUES")
			noError(t, err)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s.log, s.cfg = &safeBuffer{}, httpmw.IdempotencyConfig{}
			s.cfg.Telemetry.Logger = slog.New(slog.NewTextHandler(s.log, nil))
			if c.change != nil {
				c.change(&s.cfg)
			}
			mux := http.NewServeMux()
			h := func(w http.ResponseWriter, r *http.Request) {
				c.handler(w, r)
				if name != "refused" {
					w.WriteHeader(http.StatusCreated)
				}
			}
			mux.HandleFunc("POST /payments", h)
			mux.HandleFunc("POST /others", h)
			s.serve(s.middleware(mux))
			status := s.post(`"`+name+` 1"`, "{}").status
			require.Equal(t, name == "refused", status >= http.StatusBadRequest)
			s.post(`"`+name+` 2"`, "{}")
			require.Equal(t, c.want, strings.Count(s.log.String(), unused), "once for the route")
			s.post(`"`+name+` 3"`, "{}", at("/others"))
			require.Equal(t, 2*c.want, strings.Count(s.log.String(), unused), "and once for another one")
			if c.want > 0 {
				require.Contains(t, s.log.String(), `level=WARN`)
				require.Contains(t, s.log.String(), `route="POST /others"`)
			}
		})
	}
}
