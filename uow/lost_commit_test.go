package uow_test

import (
	"context"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/unit"
	"github.com/oncebox/oncebox/uow"
)

// executeThenFail executes the statement and then returns an error, as a network does that loses the answer.
func executeThenFail(c *faultyConn, commit func() error) error {
	if err := commit(); err != nil {
		return err
	}
	_ = c.beneath.Close()
	return io.ErrUnexpectedEOF
}

// failAtOnce loses the connection before COMMIT.
func failAtOnce(c *faultyConn, _ func() error) error {
	_ = c.beneath.Close()
	return io.ErrUnexpectedEOF
}

// change is one unit with data and an event. It reports whether the hook ran.
func change(ctx context.Context, units *uow.Manager, a *account, text string) (hooked bool, err error) {
	err = units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		u.Track(a)
		u.AfterCommit(func(context.Context) { hooked = true })
		return note(ctx, u, text)
	})
	return hooked, err
}

func TestLostAnswerToACommitThatHappened(t *testing.T) {
	s := newService(t, nil)
	for name, conns := range map[string]int{"one connection": 1, "many": 0} {
		t.Run(name, func(t *testing.T) {
			f := &faults{commit: executeThenFail}
			pool := s.broken(t, f)
			pool.SetMaxOpenConns(conns) // with one, it has to be given back before the server can be asked
			for _, units := range []*uow.Manager{s.manager(nil, pool, s.sink), s.manager(nil, pool, &probeSink{tableSink: s.sink})} {
				s.sink.committed = nil
				_, err := s.DB.Exec("TRUNCATE notes, sunk")
				require.NoError(t, err)
				a := newAccount("a", "one")
				hooked, err := change(t.Context(), units, a, "x")
				require.NoError(t, err)
				require.True(t, hooked)
				require.Equal(t, []string{"x"}, s.notes(t), "exactly once")
				require.Equal(t, []string{"account a v1 one"}, s.sunk(t))
				require.Equal(t, []string{"account a v1 one"}, s.sink.committed)
				require.Empty(t, a.RecordedEvents())
				require.Contains(t, s.logs.all(), "the connection broke during COMMIT")
				require.Zero(t, pool.Stats().InUse)
			}
		})
	}
}

func TestCommitThatNeverReachedTheServer(t *testing.T) {
	s := newService(t, nil)
	pool := s.broken(t, &faults{commit: failAtOnce})
	pool.SetMaxOpenConns(1)
	a := newAccount("a", "one")
	hooked, err := change(t.Context(), s.manager(nil, pool, s.sink), a, "x")
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.ErrorIs(t, err, uow.ErrConnectionLost)
	require.ErrorContains(t, err, "uow: commit: ")
	require.NotErrorIs(t, err, uow.ErrCommitUnknown)
	require.False(t, hooked)
	s.requireNothing(t)
	require.Zero(t, pool.Stats().InUse)
	require.Len(t, a.RecordedEvents(), 1)
}

// A session that is ended by an administrator at the wrong moment.
func TestSessionThatWasTerminated(t *testing.T) {
	s := newService(t, nil)
	pool := s.broken(t, &faults{commit: func(c *faultyConn, commit func() error) error {
		_, err := s.DB.Exec("SELECT pg_terminate_backend(?, 10000)", c.Conn().PgConn().PID())
		require.NoError(t, err)
		return commit()
	}})
	_, err := change(t.Context(), s.manager(nil, pool, s.sink), newAccount("a", "one"), "x")
	require.ErrorIs(t, err, uow.ErrConnectionLost)
	s.requireNothing(t)
}

// Answers of the server, and the outcomes that the unit can find out by them. The transaction is committed
// in all cases.
func TestAnswersToCommit(t *testing.T) {
	s := newService(t, nil)
	for _, c := range []struct {
		name     string
		answer   error
		believed bool
	}{
		{"refused", &pgconn.PgError{SeverityUnlocalized: "ERROR", Code: "23505"}, true},
		{"rolled back", pgx.ErrTxCommitRollback, true},
		{"a session that ends", &pgconn.PgError{SeverityUnlocalized: "FATAL", Code: "57P01"}, false},
		{"a server that crashes", &pgconn.PgError{SeverityUnlocalized: "PANIC", Code: "XX000"}, false},
		{"a disk that fails", &pgconn.PgError{SeverityUnlocalized: "FATAL", Code: "58030"}, false},
		{"shutdown", &pgconn.PgError{SeverityUnlocalized: "ERROR", Code: "57P02"}, false},
		{"a pooler that lost its server", &pgconn.PgError{SeverityUnlocalized: "ERROR", Code: "08006"}, false},
		{"no answer", io.ErrUnexpectedEOF, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			pool := s.broken(t, &faults{commit: func(_ *faultyConn, commit func() error) error {
				require.NoError(t, commit())
				return c.answer
			}})
			_, err := change(t.Context(), s.manager(nil, pool, s.sink), newAccount("a", "one"), c.name)
			if c.believed {
				require.ErrorIs(t, err, c.answer)
			} else {
				require.NoError(t, err)
			}
		})
	}
}

func TestLostAnswerOfAUnitThatWroteNothing(t *testing.T) {
	s := newService(t, nil)
	f := &faults{commit: failAtOnce}
	require.NoError(t, s.manager(nil, s.broken(t, f)).Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		_, err := u.DB().NewRaw("SELECT 1").Exec(ctx)
		return err
	}))
	require.Zero(t, f.questions.Load(), "there is nothing to ask about")
}

// patiently runs fn with a longer and longer CommitTimeout until it was long enough: a busy machine may take all of a short one to
// send COMMIT.
func patiently(t *testing.T, timeout time.Duration, fn func(timeout time.Duration) (enough bool)) {
	t.Helper()
	for ; !fn(timeout); timeout *= 2 {
		require.Less(t, timeout, time.Minute, "not once, however long the timeout")
	}
}

// The database is gone for longer than anybody wants to wait. The error says what was wrong, and not only that the time was up.
func TestOutcomeThatCannotBeFoundOut(t *testing.T) {
	patiently(t, 100*time.Millisecond, func(timeout time.Duration) bool {
		s := newService(t, nil)
		f := &faults{detached: true}
		f.commit = func(c *faultyConn, commit func() error) error {
			f.down.Store(true)
			return executeThenFail(c, commit)
		}
		pool := s.broken(t, f)
		a := newAccount("a", "one")
		hooked, err := change(t.Context(), s.manager(&uow.Config{CommitTimeout: timeout}, pool, s.sink), a, "x")
		if !f.refused.Load() {
			return false
		}
		var unknown *uow.CommitUnknownError
		require.ErrorAs(t, err, &unknown)
		require.ErrorIs(t, err, uow.ErrCommitUnknown)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.ErrorIs(t, err, errDown)
		require.False(t, hooked)
		require.Empty(t, s.sink.committed)
		require.Len(t, a.RecordedEvents(), 1, "nobody knows, so nothing is forgotten")
		require.Zero(t, pool.Stats().InUse)
		// The error alone is enough to find out.
		require.Equal(t, []string{"committed"}, lines(t, s, "SELECT pg_xact_status(?::text::xid8)", unknown.XID))
		require.Equal(t, []string{"x"}, s.notes(t))
		return true
	})
}

// Another server than that of the transaction: its ids have not come that far yet.
func TestOutcomeOfTheFuture(t *testing.T) {
	s := newService(t, nil)
	f := &faults{commit: executeThenFail}
	_, err := change(t.Context(), s.manager(nil, s.broken(t, f), &liar{&probeSink{tableSink: s.sink}}), newAccount("a", "one"), "x")
	var unknown *uow.CommitUnknownError
	require.ErrorAs(t, err, &unknown)
	require.EqualValues(t, 1, f.questions.Load(), "at once, not after the timeout")
	require.Equal(t, "9000000000000000000", unknown.XID)
	require.Equal(t, "22023", pgerr.Code(err))
}

// liar answers the probe with the id of a transaction that does not exist.
type liar struct{ *probeSink }

func (s *liar) Enqueue(ctx context.Context, tx bun.IDB, q *unit.Queue, evs []event.Envelope) error {
	err := s.probeSink.Enqueue(ctx, tx, q, evs)
	q.XID = "9000000000000000000"
	return err
}

func TestOutcomeThatTheServerHasForgotten(t *testing.T) {
	s := newService(t, nil)
	f := &faults{commit: executeThenFail, forgetful: true}
	_, err := change(t.Context(), s.manager(nil, s.broken(t, f), s.sink), newAccount("a", "one"), "x")
	require.ErrorIs(t, err, uow.ErrCommitUnknown)
	require.EqualValues(t, 1, f.questions.Load(), "at once, not after the timeout")
}

// The look for a row fails once. Where the reason may pass, the unit looks again.
func TestLookForARowThatFails(t *testing.T) {
	s := newService(t, nil)
	for code, again := range map[string]bool{
		"08006": true, "40001": true, "53300": true, "55P03": true, "57014": true, "57P01": true, "57P03": true, "42P01": false, "42501": false,
	} {
		t.Run(code, func(t *testing.T) {
			looks := 0
			units := s.manager(nil, s.broken(t, &faults{commit: executeThenFail, forgetful: true}))
			err := units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
				uow.Inside(u).ProvedBy(func(context.Context, bun.IDB, string) (bool, error) {
					if looks++; looks == 1 {
						return false, &pgconn.PgError{Severity: "ERROR", Code: code}
					}
					return true, nil
				})
				return note(ctx, u, code)
			}, uow.WithoutRetry())
			if again {
				require.NoError(t, err)
				require.Equal(t, 2, looks)
			} else {
				require.ErrorIs(t, err, uow.ErrCommitUnknown)
				require.Equal(t, 1, looks)
			}
		})
	}
}

// slowCommit makes COMMIT wait for a lock that the test holds, and returns how to let it go on.
func (s *service) slowCommit(t *testing.T) (release func()) {
	t.Helper()
	_, err := s.DB.Exec(`CREATE FUNCTION wait_for_test() RETURNS trigger LANGUAGE plpgsql AS
			$f$ BEGIN PERFORM pg_advisory_xact_lock(hashtext(current_schema())); RETURN NULL; END $f$;
		CREATE CONSTRAINT TRIGGER wait_for_test AFTER INSERT ON notes DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION wait_for_test()`)
	require.NoError(t, err)
	tx, err := s.DB.BeginTx(context.Background(), nil)
	require.NoError(t, err)
	_, err = tx.Exec("SELECT pg_advisory_xact_lock(hashtext(current_schema()))")
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return func() { require.NoError(t, tx.Rollback()) }
}

// commitInBackground loses the connection while COMMIT goes on at the server.
func commitInBackground(c *faultyConn, commit func() error) error {
	c.busy.Store(true)
	c.f.background.Go(func() {
		_ = commit()
		_ = c.beneath.Close()
	})
	return io.ErrUnexpectedEOF
}

func TestCommitThatIsStillInProgress(t *testing.T) {
	s := newService(t, nil)
	f := &faults{commit: commitInBackground, detached: true}
	pool, release := s.broken(t, f), s.slowCommit(t)
	var once atomic.Bool
	f.call = func(what string, run func() error) error {
		if strings.Contains(what, "pg_terminate_backend") {
			return errRefused // as to a role that may not
		}
		if strings.Contains(what, "pg_xact_status") && f.questions.Load() > 2 && !once.Swap(true) {
			release() // it was asked, it was in progress, it was asked again
		}
		return run()
	}
	hooked, err := change(t.Context(), s.manager(nil, pool, s.sink), newAccount("a", "one"), "x")
	require.NoError(t, err)
	require.True(t, hooked)
	require.Greater(t, f.questions.Load(), int64(2))
	require.Equal(t, []string{"x"}, s.notes(t))
}

func TestCommitThatStaysInProgress(t *testing.T) {
	patiently(t, 100*time.Millisecond, func(timeout time.Duration) bool {
		s := newService(t, nil)
		f := &faults{commit: commitInBackground, detached: true}
		pool, release := s.broken(t, f), s.slowCommit(t)
		asked := false
		f.call = func(what string, run func() error) error {
			if strings.Contains(what, "pg_terminate_backend") {
				asked = true
				return errRefused
			}
			return run()
		}
		_, err := change(t.Context(), s.manager(&uow.Config{CommitTimeout: timeout}, pool, s.sink), newAccount("a", "one"), "x")
		if !asked {
			return false
		}
		require.ErrorIs(t, err, uow.ErrCommitUnknown)
		require.ErrorIs(t, err, errRefused, "why it could not be ended")
		require.Empty(t, s.notes(t), "not there yet")
		release()
		f.background.Wait()
		require.Equal(t, []string{"x"}, s.notes(t), "which is why nobody could say")
		return true
	})
}

// A COMMIT that hangs unnoticed is ended, with all its locks, and the function is run again.
func TestCommitThatHangsIsEnded(t *testing.T) {
	s := newService(t, quick())
	f := &faults{detached: true}
	first := true
	f.commit = func(c *faultyConn, commit func() error) error {
		if !first {
			return commit()
		}
		first = false
		return commitInBackground(c, commit)
	}
	pool, release := s.broken(t, f), s.slowCommit(t)
	tries := 0
	err := s.manager(quick(), pool, s.sink).Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		if tries++; tries == 2 {
			f.background.Wait() // it has been ended, or this would last for ever
			release()
		}
		u.Track(newAccount("a", "one"))
		return note(ctx, u, "x")
	})
	require.NoError(t, err)
	require.Equal(t, 2, tries)
	require.Equal(t, []string{"x"}, s.notes(t))
	require.Equal(t, []string{"account a v1 one"}, s.sunk(t))
}

// After a failover the ids of transactions belong to others.
func TestOutcomeOnAnotherTimeline(t *testing.T) {
	s := newService(t, nil)
	f := &faults{timeline: "000000FF", commit: func(c *faultyConn, commit func() error) error {
		pid := c.Conn().PgConn().PID()
		err := executeThenFail(c, commit)
		// As long as the session goes on, it is the same server.
		await.True(t, func() bool {
			return lines(t, s, "SELECT count(*)::text FROM pg_stat_activity WHERE pid = ?", pid)[0] == "0"
		}, "the session has ended")
		return err
	}}
	_, err := change(t.Context(), s.manager(nil, s.broken(t, f), s.sink), newAccount("a", "one"), "x")
	var unknown *uow.CommitUnknownError
	require.ErrorAs(t, err, &unknown)
	require.ErrorContains(t, err, `mark "000000FF `)
	require.EqualValues(t, 1, f.questions.Load(), "at once, not after the timeout")
	require.Regexp(t, "^[0-9A-F]{8}$", unknown.Timeline)
	require.NotEqual(t, "000000FF", unknown.Timeline)
	require.Positive(t, unknown.PID)
	require.WithinDuration(t, time.Now(), unknown.Start, time.Hour)
}

// Some servers let nobody ask for the position of their log.
func TestOutcomeWithoutATimeline(t *testing.T) {
	s := newService(t, nil)
	_, err := s.DB.Exec(`CREATE FUNCTION pg_walfile_name(pg_lsn) RETURNS text LANGUAGE plpgsql AS
		$f$ BEGIN RAISE insufficient_privilege; END $f$`)
	require.NoError(t, err)
	s.DSN = strings.Replace(s.DSN, "search_path="+s.Schema, "search_path="+s.Schema+"%2Cpg_catalog", 1) // the schema's goes first
	f := &faults{commit: executeThenFail}
	pool := s.broken(t, f)
	_, err = pool.Exec("SELECT pg_walfile_name('0/0')")
	require.Equal(t, "42501", pgerr.Code(err))
	hooked, err := change(t.Context(), s.manager(nil, pool, s.sink), newAccount("a", "one"), "x")
	require.NoError(t, err)
	require.True(t, hooked)
	require.EqualValues(t, 1, f.questions.Load())
}

// COMMIT is bounded too. It is cancelled then, and the server says what that came to.
func TestCommitThatTakesTooLong(t *testing.T) {
	s := newService(t, nil)
	s.slowCommit(t)
	_, err := change(t.Context(), s.manager(&uow.Config{CommitTimeout: 200 * time.Millisecond}, s.DB.DB, s.sink), newAccount("a", "one"), "x")
	require.Error(t, err)
	require.Empty(t, s.notes(t))
	require.Empty(t, s.sunk(t))
}
