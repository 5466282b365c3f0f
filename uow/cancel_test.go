package uow_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/linktest"
	"github.com/oncebox/oncebox/internal/nightly"
	"github.com/oncebox/oncebox/internal/unit"
	"github.com/oncebox/oncebox/uow"
)

// The caller gives up at any point: before, during or after any of the calls to the server. Then either there is an
// error and nothing is stored, or there is none and all of it is.
func TestCancelledAnywhere(t *testing.T) {
	s := newService(t, nil)
	f := &faults{}
	pool := s.broken(t, f)
	units := s.manager(nil, pool, s.sink)
	work := func(ctx context.Context, text string) error {
		return units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
			u.Track(newAccount(text, "one"))
			if err := note(ctx, u, text); err != nil {
				return err
			}
			return units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
				u.Track(newAccount(text, "two"))
				return note(ctx, u, text+" inner")
			})
		})
	}
	calls := 0
	f.call = func(_ string, run func() error) error { calls++; return run() }
	require.NoError(t, work(t.Context(), "all"))
	total := calls

	committed, failed := 0, 0
	for seed := range nightly.Seeds(t, 200, 5000) {
		rng := rand.New(rand.NewPCG(seed, 0))
		point, when := rng.IntN(total), rng.IntN(3)
		ctx, cancel := context.WithCancelCause(t.Context())
		var during sync.WaitGroup
		calls = 0
		f.call = func(_ string, run func() error) error {
			calls++
			if calls-1 != point {
				return run()
			}
			switch when {
			case 0:
				cancel(errRefused)
			case 1:
				during.Go(func() { cancel(errRefused) })
			default:
				defer cancel(errRefused)
			}
			return run()
		}
		text := fmt.Sprint("seed ", seed)
		err := work(ctx, text)
		during.Wait()
		cancel(nil)

		stored := lines(t, s, "SELECT text FROM notes WHERE text LIKE ? || '%'", text+" ")
		stored = append(stored, lines(t, s, "SELECT text FROM notes WHERE text = ?", text)...)
		stored = append(stored, lines(t, s, "SELECT line FROM sunk WHERE line LIKE ?", "account "+text+" v%")...)
		if err == nil {
			committed++
			require.Len(t, stored, 4, "seed %d: %v", seed, stored)
		} else {
			failed++
			require.Empty(t, stored, "seed %d: %v", seed, err)
		}
		requireGivenBack(t, pool, text)
	}
	require.NotZero(t, committed)
	require.NotZero(t, failed)
	t.Logf("%d calls to the server; of %d units %d were committed and %d were not", total, committed+failed, committed, failed)
}

func TestCancelledBeforeCommit(t *testing.T) {
	s := newService(t, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	s.sink.after = func(context.Context, bun.IDB) error {
		cancel(errRefused)
		return nil
	}
	units := s.manager(nil, s.DB.DB, &uncancelled{s.sink})
	err := units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		u.Track(newAccount("a", "one"))
		return note(ctx, u, "x")
	})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, errRefused)
	require.ErrorContains(t, err, "uow: before COMMIT: context canceled: refused")
	s.requireNothing(t)
}

// The same, where the probe is what finds out.
func TestCancelledAtTheEndOfTheFunction(t *testing.T) {
	s := newService(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	err := s.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		defer cancel()
		return note(ctx, u, "x")
	})
	require.EqualError(t, err, "uow: before COMMIT: context canceled")
	s.requireNothing(t)
}

// A session that an administrator ends within a unit takes nothing with it but the unit.
func TestTerminatedWithinAUnit(t *testing.T) {
	s := newService(t, nil)
	pool := s.broken(t, &faults{})
	pool.SetMaxOpenConns(1)
	units := s.manager(nil, pool, s.sink)
	err := units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		require.NoError(t, note(ctx, u, "x"))
		_, err := s.Exec("SELECT pg_terminate_backend(?, 10000)", lines(t, u.DB(), "SELECT pg_backend_pid()::text")[0])
		require.NoError(t, err)
		u.Track(newAccount("a", "one"))
		return nil
	})
	require.Error(t, err)
	s.requireNothing(t)
	require.Zero(t, pool.Stats().InUse)
	require.NoError(t, units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error { return note(ctx, u, "y") }))
	require.Equal(t, []string{"y"}, s.notes(t))
}

// uncancelled is a sink that answers the probe and then loses its caller.
type uncancelled struct{ *tableSink }

func (s *uncancelled) Enqueue(ctx context.Context, tx bun.IDB, q *unit.Queue, evs []event.Envelope) error {
	if err := tx.NewRaw("SELECT pg_current_xact_id()::text").Scan(ctx, &q.XID); err != nil {
		return err
	}
	return s.Flush(ctx, tx, evs)
}

// Once COMMIT is under way the caller cannot stop it any more.
func TestCancelledDuringCommit(t *testing.T) {
	s := newService(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	f := &faults{call: func(what string, run func() error) error {
		if what == "COMMIT" {
			cancel()
		}
		return run()
	}}
	a := newAccount("a", "one")
	require.NoError(t, s.manager(nil, s.broken(t, f), s.sink).Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		u.Track(a)
		u.AfterCommit(func(ctx context.Context) { require.NoError(t, ctx.Err()) })
		return note(ctx, u, "x")
	}))
	require.Equal(t, []string{"x"}, s.notes(t))
	require.Equal(t, []string{"account a v1 one"}, s.sink.committed)
	require.Empty(t, a.RecordedEvents())
}

func TestCancelledWhileWaitingForAConnection(t *testing.T) {
	s := newService(t, nil)
	pool := s.Another(t)
	pool.SetMaxOpenConns(1)
	held, err := pool.Conn(t.Context())
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- s.manager(nil, pool).Do(ctx, func(context.Context, *uow.Unit) error {
			t.Error("there is no connection to run on")
			return nil
		})
	}()
	await.True(t, func() bool { return pool.Stats().WaitCount == 1 }, "the unit waits for a connection")
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.NoError(t, held.Close())
	require.Zero(t, pool.Stats().InUse)
}

func TestCancelledFromTheStart(t *testing.T) {
	s := newService(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.units.Do(ctx, func(context.Context, *uow.Unit) error {
		t.Error("the caller is gone")
		return nil
	}), context.Canceled)
	s.requireNothing(t)
}

// The answer to BEGIN and the end of the caller come together.
func TestCancelledDuringBegin(t *testing.T) {
	s := newService(t, nil)
	for _, name := range []string{"before", "after"} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			f := &faults{call: func(what string, run func() error) error {
				if what != "BEGIN" {
					return run()
				}
				if name == "before" {
					cancel(errRefused)
				} else {
					defer cancel(errRefused)
				}
				return run()
			}}
			pool := s.broken(t, f)
			err := s.manager(nil, pool).Do(ctx, func(context.Context, *uow.Unit) error {
				t.Error("the caller is gone")
				return nil
			})
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorContains(t, err, "uow: begin: ")
			requireGivenBack(t, pool, name)
			var one int
			require.NoError(t, pool.NewRaw("SELECT 1").Scan(t.Context(), &one), "the pool is as good as before")
		})
	}
}

// The unit's questions to a connection that it sees for the first time can be cancelled as well.
func TestCancelledBeforeBegin(t *testing.T) {
	s := newService(t, nil)
	n := s.network(t)
	n.pool.SetMaxOpenConns(1)
	for range 3 {
		require.NoError(t, n.pool.PingContext(t.Context())) // so that the pool does not ask
	}
	n.link.Silence(linktest.ToClient)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := s.manager(quick(), n.pool, s.sink).Do(ctx, func(context.Context, *uow.Unit) error { return nil }, uow.WithoutRetry())
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// A rollback that fails loses the connection and nothing else.
func TestRollbackThatFails(t *testing.T) {
	s := newService(t, nil)
	f := &faults{}
	f.call = func(what string, run func() error) error {
		err := run()
		if what == "ROLLBACK" {
			return errDown
		}
		return err
	}
	pool := s.broken(t, f)
	units := s.manager(nil, pool, s.sink)
	require.Equal(t, errRefused, units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		require.NoError(t, note(ctx, u, "x"))
		return errRefused
	}), "the function's own error counts")
	s.requireNothing(t)
	require.Zero(t, pool.Stats().InUse)
}
