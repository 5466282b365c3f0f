package step_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/step"
	"github.com/oncebox/oncebox/uow"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// killedDSN, killedIn and killedAt name to a process of TestKilled its database, its handler, and the place where it stops.
const (
	killedDSN = "STEP_TEST_KILLED_DSN"
	killedIn  = "STEP_TEST_KILLED_IN"
	killedAt  = "STEP_TEST_KILLED_AT"
)

// Where a process is killed.
const (
	prepared = "the mail is prepared"
	begun    = "the beginning is stored"
	called   = "the mail is sent"
)

var errRefused = errors.New("the request was refused")

// mailers are the handlers, of a message and of a request, which send a mail and write down the outcome. They return nil when they are done.
func mailers(db *bun.DB, point func(where string)) map[string]func() error {
	units := uow.New(db, nil)
	mail := func(ctx context.Context) error {
		outcome, err := step.AtMostOnce(ctx, "mail", "unclear", func(ctx context.Context) (func() (string, error), error) {
			point(prepared)
			return func() (string, error) {
				point(begun)
				_, err := db.ExecContext(ctx, "INSERT INTO mails VALUES ('hello')")
				point(called)
				return "sent", err
			}, nil
		})
		if err == nil {
			_, err = db.ExecContext(ctx, "INSERT INTO outcomes VALUES (?)", outcome)
		}
		return err
	}
	message := inbox.New(units, nil).WrapLeased("mails", messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error { return mail(ctx) }))
	cfg := &httpmw.IdempotencyConfig{Lease: &httpmw.LeaseConfig{}}
	request := httpmw.Idempotency(units, idempotency.NewStore(nil), httpmw.Anyone, cfg)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if mail(r.Context()) != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	return map[string]func() error{
		"message": func() error {
			return message.Handle(context.Background(), messaging.NewMessage(event.Envelope{ID: "m", Type: "paid", Source: "shop", Topic: "order"}, 1, nil))
		},
		"request": func() error {
			r, w := httptest.NewRequest(http.MethodPost, "/mails", nil), httptest.NewRecorder()
			r.Header.Set("Idempotency-Key", "k")
			if request.ServeHTTP(w, r); w.Code != http.StatusNoContent {
				return fmt.Errorf("%w: %d", errRefused, w.Code)
			}
			return nil
		},
	}
}

// TestKilledProcess is the process that is killed. It is a test of nothing where it has no database.
func TestKilledProcess(t *testing.T) {
	dsn := os.Getenv(killedDSN)
	if dsn == "" {
		return
	}
	pool, err := sql.Open("pgx", dsn)
	require.NoError(t, err)
	defer pool.Close()
	handle := mailers(bun.NewDB(pool, pgdialect.New()), func(where string) {
		if where == os.Getenv(killedAt) {
			fmt.Fprintln(os.Stdout, "reached")
			<-t.Context().Done() // for ever
		}
	})[os.Getenv(killedIn)]
	require.NoError(t, handle())
}

// The process dies of kill -9. Another one goes on when the lease has ended, and no mail is sent twice.
func TestKilled(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"message", "request"} {
		for at, want := range map[string]struct {
			mails   int
			outcome string
		}{prepared: {1, "sent"}, begun: {0, "unclear"}, called: {1, "unclear"}} {
			t.Run(in+": "+at, func(t *testing.T) {
				t.Parallel()
				db := pgtest.Migrated(t)
				db.Exec("CREATE TABLE mails (text text); CREATE TABLE outcomes (outcome text)")
				cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledProcess$")
				cmd.Env = append(os.Environ(), killedDSN+"="+db.DSN, killedIn+"="+in, killedAt+"="+at)
				out, err := cmd.StdoutPipe()
				require.NoError(t, err)
				require.NoError(t, cmd.Start())
				said := bufio.NewScanner(out)
				for said.Scan() && said.Text() != "reached" {
				}
				require.Equal(t, "reached", said.Text())
				require.NoError(t, cmd.Process.Kill())
				require.Error(t, cmd.Wait())
				handle := mailers(db.DB, func(string) {})[in]
				require.Error(t, handle(), "nobody knows yet that it is dead")
				await.True(t, func() bool {
					db.Exec("UPDATE idempotency_keys SET locked_until = clock_timestamp() - interval '1 s' WHERE state = 'claimed'")
					db.Exec("UPDATE oncebox_lease SET lease_until = clock_timestamp() - interval '1 s' WHERE task = 'inbox.message'")
					return handle() == nil
				}, "the handler is done, now that the lease has ended")
				var mails int
				var outcome string
				require.NoError(t, db.NewRaw("SELECT (SELECT count(*) FROM mails), outcome FROM outcomes").Scan(t.Context(), &mails, &outcome))
				require.Equal(t, want.mails, mails)
				require.Equal(t, want.outcome, outcome)
			})
		}
	}
}
