package httpmw_test

import (
	"context"
	"database/sql"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/uow"
)

// A handler that works with units.DB alone and hides a deadlock in any way is run again as well.
func TestDeadlockThatNoUnitSees(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]int{"500": http.StatusInternalServerError, "404": http.StatusNotFound, "swallowed": http.StatusOK} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			_, err := s.db.ExecContext(t.Context(), "INSERT INTO payments (id, note) VALUES (-1, ''), (-2, '')")
			require.NoError(t, err)
			var barrier sync.WaitGroup
			barrier.Add(2)
			answered := make(chan struct{}, 2)
			s.start(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				noError(t, err)
				first := s.runs.Load() <= 2
				if !first {
					<-answered // or it could have its first row back before the other one gets it, and they would do the same again
				}
				for i, id := range strings.Fields(string(body)) {
					_, err := s.units.DB(r.Context()).ExecContext(r.Context(), "UPDATE payments SET note = note || 'x' WHERE id = ?", id)
					if err != nil {
						w.WriteHeader(status)
						return
					}
					if i == 0 && first {
						barrier.Done()
						barrier.Wait()
					}
				}
				w.WriteHeader(http.StatusOK)
			})
			var group sync.WaitGroup
			statuses := make([]int, 2)
			for i, body := range []string{"-1 -2", "-2 -1"} {
				r := s.request(body[:2], body)
				group.Go(func() {
					got, _ := send(r)
					statuses[i] = got.status
					answered <- struct{}{}
				})
			}
			group.Wait()
			require.Equal(t, []int{200, 200}, statuses)
			require.Equal(t, 4, s.count("SELECT sum(length(note)) FROM payments"))
			require.EqualValues(t, 3, s.runs.Load())
			require.Equal(t, 2, s.stored())
		})
	}
}

// A handler that takes every error of its SELECT for "there is no row" does not know whether there is a row.
func TestNothingIsStoredOfASessionThatDied(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pool   func(*service) *bun.DB
		status int // of the first request
		runs   int64
	}{
		"config.OpenDB": {func(s *service) *bun.DB { return s.pool }, http.StatusCreated, 2},
		"config.OpenDB, behind a pooler": {func(s *service) *bun.DB {
			cfg, err := pgx.ParseConfig(s.db.DSN)
			require.NoError(t, err)
			pool := sql.OpenDB(pgsql.NewConnector(*cfg, pgsql.BehindPooler()))
			t.Cleanup(func() { _ = pool.Close() })
			return bun.NewDB(pool, pgdialect.New())
		}, http.StatusCreated, 2},
		// Nobody knows why the connection is closed.
		"another pool": {func(s *service) *bun.DB { return s.db.DB }, http.StatusNotFound, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			s.units = uow.New(c.pool(s), &s.unitConfig, s.sink)
			s.start(func(w http.ResponseWriter, r *http.Request) {
				var pid int
				tx := s.units.DB(r.Context())
				noError(t, tx.NewRaw("SELECT pg_backend_pid()").Scan(r.Context(), &pid))
				if s.runs.Load() == 1 {
					_, err := s.db.ExecContext(r.Context(), "SELECT pg_terminate_backend(?, 10000)", pid)
					noError(t, err)
				}
				if tx.NewRaw("SELECT pg_backend_pid()").Scan(r.Context(), &pid) != nil {
					http.Error(w, "there is none", http.StatusNotFound)
					return
				}
				w.WriteHeader(http.StatusCreated)
			})
			require.Equal(t, c.status, s.post("k", "{}").status)
			require.Equal(t, c.runs, s.runs.Load())
			require.Equal(t, http.StatusCreated, s.post("k", "{}").status)
			require.EqualValues(t, 2, s.runs.Load())
		})
	}
}

// A statement whose handler gave it too little time is no accident: the handler is not run again, and its
// answer about it is not final.
func TestStatementThatTheHandlerCancelled(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.cfg.Wait = 2 * time.Minute // the server may not have noticed it yet
	s.start(func(w http.ResponseWriter, r *http.Request) {
		if s.runs.Load() == 1 {
			ctx, cancel := context.WithTimeout(r.Context(), 10*time.Millisecond)
			defer cancel()
			_, err := s.units.DB(ctx).ExecContext(ctx, "SELECT pg_sleep(60)")
			if err == nil {
				t.Error("it was not cancelled")
			}
			http.Error(w, "there is none", http.StatusNotFound)
			return
		}
		w.WriteHeader(http.StatusOK)
	})
	require.Equal(t, http.StatusNotFound, s.post("k", "{}").status)
	require.EqualValues(t, 1, s.runs.Load())
	require.Equal(t, http.StatusOK, s.post("k", "{}").status)
}

// A failure that the handler has mended itself is no reason to run it again.
func TestConflictThatTheHandlerMended(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start(func(w http.ResponseWriter, r *http.Request) {
		for tries := range 2 {
			err := s.units.Do(r.Context(), func(context.Context, *uow.Unit) error {
				if tries == 0 {
					return uow.ErrConflict
				}
				return nil
			})
			if err == nil {
				break
			}
		}
		http.Error(w, "there is none", http.StatusNotFound)
	})
	for range 2 {
		require.Equal(t, http.StatusNotFound, s.post("k", "{}").status)
	}
	require.EqualValues(t, 1, s.runs.Load())
	require.Equal(t, 1, s.stored())
}
