package httpmw_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/step"
	"github.com/oncebox/oncebox/uow"
)

const (
	// killedDSN and killedAt tell a process of TestKilledUnderALease its database and where it is to stop.
	killedDSN = "HTTPMW_TEST_KILLED_DSN"
	killedAt  = "HTTPMW_TEST_KILLED_AT"
)

// Where a process is killed.
const (
	beforeSteps = "before the first step"
	stepCalled  = "the other side was called"
	stepStored  = "the result of the call is stored"
	onceBegun   = "a step that is done once was begun"
	onceStored  = "its result is stored"
	txOpen      = "the transaction of a step is open"
	txCommitted = "it is committed"
)

// transfer is a leased handler that calls two other systems and books their answers. point is called at each place
// where it may be killed. The other systems' work is rows that no unit of the handler touches.
func transfer(db *bun.DB, point func(where string)) http.Handler {
	units := uow.New(db, nil)
	outside := func(what string) (string, error) {
		_, err := db.ExecContext(context.Background(), "INSERT INTO outside (what) VALUES (?)", what)
		return what, err
	}
	cfg := &httpmw.IdempotencyConfig{Lease: &httpmw.LeaseConfig{
		Recover: func(ctx context.Context, _ *http.Request, u idempotency.Unknown) (idempotency.Outcome, error) {
			n, err := db.NewSelect().Table("outside").Where("what = ?", u.Step).Count(ctx)
			if n == 0 {
				return idempotency.StepNotDone(), err
			}
			return idempotency.StepDone(u.Step), err
		},
	}}
	return httpmw.Idempotency(units, idempotency.NewStore(nil), byHeader, cfg)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		point(beforeSteps)
		charged, err := step.Call(r.Context(), "charge", func(_ context.Context, key string) (string, error) {
			said, err := outside("charge " + key)
			point(stepCalled)
			return said, err
		})
		if err == nil {
			point(stepStored)
			_, err = idempotency.StepOnce(r.Context(), "wire", func(context.Context) (string, error) {
				said, err := outside("wire")
				point(onceBegun)
				return said, err
			})
		}
		if err == nil {
			point(onceStored)
			err = units.Do(r.Context(), func(ctx context.Context, u *uow.Unit) error {
				_, err := idempotency.StepTx(ctx, u.DB(), "book", func(ctx context.Context) (int, error) {
					_, err := u.DB().ExecContext(ctx, "INSERT INTO payments (note) VALUES (?)", charged)
					return 0, err
				})
				point(txOpen)
				return err
			})
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		point(txCommitted)
		_, _ = w.Write([]byte(charged))
	}))
}

func transferOnce(h http.Handler) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/transfers", strings.NewReader("{}"))
	r.Header.Set("Idempotency-Key", "k")
	r.Header.Set("X-Principal", "u1")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestKilledProcess is the process that is killed. It is a test of nothing where it has no database.
func TestKilledProcess(t *testing.T) {
	dsn, at := os.Getenv(killedDSN), os.Getenv(killedAt)
	if dsn == "" {
		return
	}
	pool, err := sql.Open("pgx", dsn)
	require.NoError(t, err)
	defer pool.Close()
	transferOnce(transfer(bun.NewDB(pool, pgdialect.New()), func(where string) {
		if where == at {
			fmt.Fprintln(os.Stdout, "reached")
			<-t.Context().Done() // for ever
		}
	}))
}

// The process dies of kill -9; another one goes on with its request when the lease has ended.
func TestKilledUnderALease(t *testing.T) {
	t.Parallel()
	for _, at := range []string{beforeSteps, stepCalled, stepStored, onceBegun, onceStored, txOpen, txCommitted} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			s.exec("CREATE TABLE outside (what text)")
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledProcess$")
			cmd.Env = append(os.Environ(), killedDSN+"="+s.db.DSN, killedAt+"="+at)
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			said := bufio.NewScanner(out)
			for said.Scan() && said.Text() != "reached" {
			}
			require.Equal(t, "reached", said.Text())
			h := transfer(s.db.DB, func(string) {})
			require.Equal(t, http.StatusConflict, transferOnce(h).Code, "it is alive, and has its lease")
			require.NoError(t, cmd.Process.Kill())
			require.Error(t, cmd.Wait())
			require.Equal(t, http.StatusConflict, transferOnce(h).Code, "nobody knows yet that it is dead")

			var answer string
			await.True(t, func() bool {
				s.endLeases() // each time: what it had sent before it died, the server may do only now
				got := transferOnce(h)
				answer = got.Body.String()
				return got.Code == http.StatusOK
			}, "an answer, now that the lease has ended")
			again := transferOnce(h)
			require.Equal(t, "true", again.Header().Get("Idempotent-Replayed"))
			require.Equal(t, answer, again.Body.String())
			require.Equal(t, 1, s.payments(), "booked once")
			require.Equal(t, 1, s.count("SELECT count(*) FROM outside WHERE what = 'wire'"), "never twice")
			require.Equal(t, 1, s.count("SELECT count(DISTINCT what) FROM outside WHERE what LIKE 'charge %'"), "with one key")
			calls := 1
			if at == stepCalled {
				calls = 2
			}
			require.Equal(t, calls, s.count("SELECT count(*) FROM outside WHERE what LIKE 'charge %'"))
		})
	}
}
