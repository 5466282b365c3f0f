package httpmw_test

import (
	"database/sql"
	"net/http"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/uow"
)

// On a server that takes no writes, nothing is executed for good, every client is asked to come again, and retries get the answers that
// are stored.
func TestReadOnlyServer(t *testing.T) {
	t.Parallel()
	for mode, lease := range map[string]*httpmw.LeaseConfig{"atomic": nil, "lease": {}} {
		t.Run(mode, func(t *testing.T) {
			s := newService(t)
			s.cfg.Lease = lease
			s.start(s.pay)
			stored := s.post("stored", "{}")
			require.Equal(t, http.StatusCreated, stored.status)

			cfg, err := pgx.ParseConfig(s.db.DSN)
			require.NoError(t, err)
			cfg.RuntimeParams["default_transaction_read_only"] = "on"
			pool := sql.OpenDB(pgsql.NewConnector(*cfg))
			t.Cleanup(func() { require.NoError(t, pool.Close()) })
			writable := s.units
			s.units = uow.New(bun.NewDB(pool, pgdialect.New()), &s.unitConfig, s.sink)
			s.keys = newKeys(s)
			status := http.StatusCreated
			answers := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
			s.serve(s.middleware(answers))
			for _, status = range []int{http.StatusCreated, http.StatusUnprocessableEntity} {
				got := s.post("k", "{}")
				require.Equal(t, http.StatusServiceUnavailable, got.status, got.body)
				require.Equal(t, "1", got.header.Get("Retry-After"))
				_, retryable := got.problem(t)
				require.True(t, retryable)
			}
			require.Equal(t, stored.body, s.post("stored", "{}").body)

			s.serve(httpmw.UnitOfWork(s.units)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = s.units.DB(r.Context()).ExecContext(r.Context(), "INSERT INTO payments DEFAULT VALUES") // and does not look at errors
				w.WriteHeader(http.StatusOK)
			})))
			got := s.post("", "{}")
			require.Equal(t, http.StatusServiceUnavailable, got.status)
			require.Equal(t, "1", got.header.Get("Retry-After"))

			s.units = writable
			s.start(s.pay)
			require.Equal(t, http.StatusCreated, s.post("k", "{}").status)
			require.Equal(t, 2, s.payments())
		})
	}
}
