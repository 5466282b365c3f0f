package uow_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/uow"
)

// terminate ends the session of a unit from another one.
func (s *service) terminate(t *testing.T, db bun.IDB) {
	t.Helper()
	_, err := s.Exec("SELECT pg_terminate_backend(?, 10000)", lines(t, db, "SELECT pg_backend_pid()::text")[0])
	require.NoError(t, err)
}

// terminator is a sink whose session is ended while it flushes.
type terminator struct {
	*tableSink

	end func(tx bun.IDB)
}

func (s *terminator) Flush(ctx context.Context, tx bun.IDB, evs []event.Envelope) error {
	s.end(tx)
	return s.tableSink.Flush(ctx, tx, evs)
}

// U10: a connection that is lost before COMMIT took nothing with it but the try.
func TestLostConnectionIsRunAgain(t *testing.T) {
	for _, where := range []string{"in the function", "in the function, hidden", "in a savepoint", "in the flush", "at COMMIT"} {
		t.Run(where, func(t *testing.T) {
			s := newService(t, nil)
			f, tries := &faults{}, 0
			first := func(here string) bool { return tries == 1 && where == here }
			f.commit = func(c *faultyConn, commit func() error) error {
				if first("at COMMIT") {
					return failAtOnce(c, commit)
				}
				return commit()
			}
			sink := &terminator{s.sink, func(tx bun.IDB) {
				if first("in the flush") {
					s.terminate(t, tx)
				}
			}}
			units := s.manager(quick(), s.broken(t, f), sink)
			err := units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
				tries++
				u.Track(newAccount("a", "one"))
				require.NoError(t, note(ctx, u, "x"))
				switch {
				case first("in the function"):
					s.terminate(t, u.DB())
					return note(ctx, u, "never")
				case first("in the function, hidden"):
					s.terminate(t, u.DB())
					_ = note(ctx, u, "never")
				case first("in a savepoint"):
					return units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
						s.terminate(t, u.DB())
						return note(ctx, u, "never")
					})
				}
				return nil
			})
			require.NoError(t, err)
			require.Equal(t, 2, tries)
			require.Equal(t, []string{"x"}, s.notes(t))
			require.Equal(t, []string{"account a v1 one"}, s.sunk(t))
		})
	}
}

// A connection that is lost before BEGIN is answered took nothing with it at all.
// A process that hangs loses its session when the server has waited long enough. If it wakes up, that is a lost connection.
func TestSessionThatWasIdleForTooLong(t *testing.T) {
	s := newService(t, nil)
	tries := 0
	err := s.manager(quick(), s.DB.DB).Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		if tries++; tries == 1 {
			pid := lines(t, u.DB(), "SELECT pg_backend_pid()::text")[0]
			_, err := u.DB().ExecContext(ctx, "SET LOCAL idle_in_transaction_session_timeout = '10ms'")
			require.NoError(t, err)
			await.True(t, func() bool {
				return len(lines(t, s.DB, "SELECT pid::text FROM pg_stat_activity WHERE pid = "+pid)) == 0
			}, "the session has ended")
		}
		return note(ctx, u, "x")
	})
	require.NoError(t, err)
	require.Equal(t, 2, tries)
}

func TestConnectionLostAtBegin(t *testing.T) {
	s := newService(t, nil)
	f := &faults{}
	pool := s.broken(t, f)
	pool.SetMaxOpenConns(1)
	pid := lines(t, pool, "SELECT pg_backend_pid()::text")[0]
	f.call = func(what string, run func() error) error {
		if what == "BEGIN" {
			_, err := s.Exec("SELECT pg_terminate_backend(?, 10000)", pid)
			require.NoError(t, err)
		}
		return run()
	}
	units, tries := s.manager(quick(), pool, s.sink), 0
	work := func(ctx context.Context, u *uow.Unit) error {
		tries++
		return note(ctx, u, "x")
	}
	require.ErrorIs(t, units.Do(t.Context(), work, uow.WithoutRetry()), uow.ErrConnectionLost)
	require.Zero(t, tries)
	pid = lines(t, pool, "SELECT pg_backend_pid()::text")[0]
	require.NoError(t, units.Do(t.Context(), work))
	require.Equal(t, 1, tries)
	require.Equal(t, []string{"x"}, s.notes(t))
}

// A server that restarts closes all connections of the pool. The unit gets by with one more try.
func TestAllConnectionsAreLost(t *testing.T) {
	s := newService(t, nil)
	pool := s.broken(t, &faults{})
	pool.SetMaxIdleConns(10)
	var pids []string
	for range 2 { // the pool does not look at connections that it has looked at just now
		var idle []bun.Conn
		for range 10 {
			c, err := pool.Conn(t.Context())
			require.NoError(t, err)
			idle = append(idle, c)
			pids = append(pids, lines(t, c, "SELECT pg_backend_pid()::text")...)
		}
		for _, c := range idle {
			require.NoError(t, c.Close())
		}
	}
	list := "{" + strings.Join(pids, ",") + "}"
	_, err := s.Exec("SELECT pg_terminate_backend(p) FROM unnest(?::int[]) p", list)
	require.NoError(t, err)
	await.True(t, func() bool {
		return len(lines(t, s, "SELECT pid::text FROM pg_stat_activity WHERE pid = ANY (?::int[])", list)) == 0
	}, "the session has ended")
	cfg := quick()
	cfg.Retry.MaxAttempts = 2
	tries := 0
	require.NoError(t, s.manager(cfg, pool, s.sink).Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		tries++
		return note(ctx, u, "x")
	}))
	require.LessOrEqual(t, tries, 2)
	require.Equal(t, []string{"x"}, s.notes(t))
}

// A statement that was given too little time is no accident, though its connection is closed.
func TestCancelledStatementIsNotRunAgain(t *testing.T) {
	s := newService(t, quick())
	tries := 0
	err := s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		tries++
		ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		defer cancel()
		_, err := u.DB().ExecContext(ctx, "SELECT pg_sleep(60)")
		return err
	})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, uow.ErrConnectionLost)
	require.Equal(t, 1, tries)
}

// The program can choose which errors are tried again, and for how long.
func TestRetryIf(t *testing.T) {
	s := newService(t, nil)
	for name, c := range map[string]struct {
		retry uow.RetryConfig
		err   error
		tries int
	}{
		"more":                 {uow.RetryConfig{If: func(err error) bool { return errors.Is(err, errRefused) }}, errRefused, 5},
		"fewer":                {uow.RetryConfig{If: func(error) bool { return false }}, uow.ErrConflict, 1},
		"never unknown":        {uow.RetryConfig{If: func(error) bool { return true }}, &uow.CommitUnknownError{XID: "1", Err: errRefused}, 1},
		"the time is up":       {uow.RetryConfig{MaxElapsed: time.Nanosecond}, uow.ErrConflict, 1},
		"the time is never up": {uow.RetryConfig{MaxElapsed: -1}, uow.ErrConflict, 5},
	} {
		t.Run(name, func(t *testing.T) {
			c.retry.Delay, c.retry.MaxDelay = time.Nanosecond, time.Nanosecond
			tries := 0
			err := s.manager(&uow.Config{Retry: c.retry}, s.DB.DB, s.sink).Do(t.Context(), func(context.Context, *uow.Unit) error {
				tries++
				return c.err
			})
			require.Equal(t, c.err, err)
			require.Equal(t, c.tries, tries)
		})
	}
}
