//go:build unix

package uow_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/uow"
)

// replicated is a service whose COMMITs wait for a standby.
type replicated struct {
	*service

	primary, standby *pgtest.Own
	// pools lists pools of config.OpenDB.
	pools map[string]*bun.DB
}

func newReplicated(t *testing.T) *replicated {
	t.Helper()
	r := &replicated{primary: pgtest.Start(t, nil)}
	r.standby = r.primary.Standby(t)
	r.service = &service{DB: r.primary.Open(t), sink: &tableSink{}, logs: &logs{}}
	r.init(t, nil, r.DB.DB)
	_, err := r.Exec("CREATE TABLE accounts (id text PRIMARY KEY, version bigint NOT NULL)")
	require.NoError(t, err)
	cfg, err := pgx.ParseConfig(r.DSN)
	require.NoError(t, err)
	pooled := sql.OpenDB(pgsql.NewConnector(*cfg, pgsql.BehindPooler()))
	t.Cleanup(func() { _ = pooled.Close() })
	r.pools = map[string]*bun.DB{"one round trip": pipelined(t, r.DSN), "behind a pooler": bun.NewDB(pooled, pgdialect.New())}
	return r
}

// eachPool runs a test with pools of config.OpenDB.
func (r *replicated) eachPool(t *testing.T, test func(t *testing.T, pool *bun.DB)) {
	t.Helper()
	for name, pool := range r.pools {
		t.Run(name, func(t *testing.T) {
			r.logs = &logs{}
			_, err := r.Exec("TRUNCATE notes, sunk, accounts")
			require.NoError(t, err)
			test(t, pool)
		})
	}
}

// saveIn runs a unit that stores an account, with an event.
func (r *replicated) saveIn(t *testing.T, pool *bun.DB, timeout time.Duration) error {
	t.Helper()
	units := r.manager(&uow.Config{CommitTimeout: timeout}, pool, &batchSink{tableSink: r.sink})
	return units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		return u.Save(ctx, newAccount("a", "one"))
	}, uow.WithoutRetry())
}

func (r *replicated) accounts(t *testing.T) []string {
	t.Helper()
	return lines(t, r, "SELECT id FROM accounts")
}

// whenAsked calls fn as soon as a unit begins to ask what became of its COMMIT.
func (r *replicated) whenAsked(fn func()) {
	r.logs.on = func(text string) {
		if strings.Contains(text, "the connection broke during COMMIT") {
			fn()
		}
	}
}

// The standby says nothing for longer than the unit waits. No caller may get a success, and nobody may see the
// transaction: the standby may take over without it.
func TestCommitThatTheStandbyDoesNotConfirm(t *testing.T) {
	t.Parallel()
	r := newReplicated(t)
	r.eachPool(t, func(t *testing.T, pool *bun.DB) {
		patiently(t, time.Second, func(timeout time.Duration) bool {
			release := r.primary.Stall(t)
			defer release()
			err := r.saveIn(t, pool, timeout)
			if errors.Is(err, uow.ErrConnectionLost) {
				return false // the time was up before COMMIT was there
			}
			require.ErrorIs(t, err, uow.ErrCommitUnknown)
			require.Empty(t, r.accounts(t), "it waits still")
			release()
			await.True(t, func() bool { return len(r.accounts(t)) == 1 }, "it was not ended")
			return true
		})
	})
}

// It is confirmed late, while the unit asks.
func TestCommitThatTheStandbyConfirmsLate(t *testing.T) {
	t.Parallel()
	r := newReplicated(t)
	r.eachPool(t, func(t *testing.T, pool *bun.DB) {
		patiently(t, time.Second, func(timeout time.Duration) bool {
			r.whenAsked(r.primary.Stall(t))
			err := r.saveIn(t, pool, timeout)
			if errors.Is(err, uow.ErrConnectionLost) {
				return false
			}
			require.NoError(t, err)
			require.Contains(t, r.logs.all(), "the connection broke during COMMIT")
			require.Equal(t, []string{"a"}, r.accounts(t))
			return true
		})
	})
}

// An administrator ends the wait. PostgreSQL calls the COMMIT a success, with a warning.
func TestWaitForTheStandbyThatIsEnded(t *testing.T) {
	t.Parallel()
	r := newReplicated(t)
	r.eachPool(t, func(t *testing.T, pool *bun.DB) {
		for _, confirmed := range []bool{false, true} {
			patiently(t, 3*time.Second, func(timeout time.Duration) bool {
				_, err := r.Exec("TRUNCATE accounts")
				require.NoError(t, err)
				release := r.primary.Stall(t)
				defer release()
				r.whenAsked(func() {
					if confirmed {
						release()
					}
				})
				began, over, ended := time.Now(), make(chan struct{}), false
				var ending sync.WaitGroup
				ending.Go(func() { ended = r.endWait(t, over) && time.Since(began) < timeout/2 })
				err = r.saveIn(t, pool, timeout)
				close(over)
				ending.Wait()
				if !ended {
					return false // the time was up, or nearly so, before COMMIT was there
				}
				require.Equal(t, []string{"a"}, r.accounts(t), "everybody sees it")
				if confirmed {
					if errors.Is(err, context.DeadlineExceeded) {
						return false // the time was up before the standby had confirmed
					}
					require.NoError(t, err)
					return true
				}
				require.ErrorIs(t, err, uow.ErrCommitUnknown)
				require.ErrorContains(t, err, "the wait for the synchronous standby was ended")
				return true
			})
		}
	})
}

// endWait ends the first wait for the standby that it sees. It reports false if there was none until over is closed.
func (r *replicated) endWait(t *testing.T, over <-chan struct{}) bool {
	t.Helper()
	seen := false
	await.True(t, func() bool {
		select {
		case <-over:
			return true
		default:
		}
		seen = len(lines(t, r, "SELECT pg_cancel_backend(pid)::text FROM pg_stat_activity WHERE wait_event = 'SyncRep'")) > 0
		return seen
	}, "the wait for the standby is ended")
	return seen
}

// The standby takes over without the transaction.
func TestStandbyTakesOverWithoutTheTransaction(t *testing.T) {
	t.Parallel()
	r := newReplicated(t)
	patiently(t, time.Second, func(timeout time.Duration) bool {
		r.primary.Stall(t)
		var failed bool
		r.whenAsked(func() {
			require.NoError(t, r.primary.Kill())
			r.standby.Promote(t)
			failed = true
		})
		at, err := url.Parse(r.DSN)
		require.NoError(t, err)
		both, err := url.Parse(r.standby.URL)
		require.NoError(t, err)
		at.Host += "," + both.Host
		err = r.saveIn(t, pipelined(t, at.String()), timeout)
		require.True(t, failed)
		require.ErrorIs(t, err, uow.ErrCommitUnknown)
		return true
	})
}
