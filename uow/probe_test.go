package uow_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/unit"
	"github.com/oncebox/oncebox/uow"
)

// A statement failed and nobody looked: PostgreSQL would answer COMMIT with ROLLBACK.
func TestSwallowedErrorOfAStatement(t *testing.T) {
	s := newService(t, nil)
	for name, emit := range map[string]func(*uow.Unit){
		"with events":    func(u *uow.Unit) { u.Track(newAccount("a", "one")) },
		"without events": func(*uow.Unit) {},
	} {
		t.Run(name, func(t *testing.T) {
			err := s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
				emit(u)
				require.NoError(t, note(ctx, u, "x"))
				_, err := u.DB().ExecContext(ctx, "SELECT 1/0")
				require.Error(t, err)
				return nil
			})
			require.Equal(t, "25P02", pgerr.Code(err))
			require.NotErrorIs(t, err, pgx.ErrTxCommitRollback, "found before COMMIT")
			s.requireNothing(t)
		})
	}
}

// A sink that swallows an error cannot hide it either, even if it has answered the probe before.
func TestSwallowedErrorOfASink(t *testing.T) {
	s := newService(t, nil)
	s.sink.after = func(ctx context.Context, tx bun.IDB) error {
		_, err := tx.ExecContext(ctx, "SELECT 1/0")
		require.Error(t, err)
		return nil
	}
	for name, units := range map[string]*uow.Manager{
		"plain":        s.units,
		"behind probe": s.manager(nil, s.DB.DB, &probeSink{tableSink: &tableSink{}}, s.sink),
	} {
		t.Run(name, func(t *testing.T) {
			err := units.Do(t.Context(), func(_ context.Context, u *uow.Unit) error {
				u.Track(newAccount("a", "one"))
				return nil
			})
			require.Equal(t, "25P02", pgerr.Code(err))
			s.requireNothing(t)
		})
	}
}

// probeSink is a sink whose statement is the probe.
type probeSink struct {
	*tableSink

	xid string
	// forget answers without an id.
	forget bool
}

func (s *probeSink) Enqueue(ctx context.Context, tx bun.IDB, q *unit.Queue, evs []event.Envelope) error {
	if err := s.Flush(ctx, tx, evs); err != nil {
		return err
	}
	if s.forget {
		return nil
	}
	err := tx.NewRaw("SELECT pg_current_xact_id()::text").Scan(ctx, &s.xid)
	q.XID = s.xid
	return err
}

// A connection that does not know which statements go over it is also probed before the sinks store, and after foreign statements.
func TestProbeSinkSparesTheProbe(t *testing.T) {
	s := newService(t, nil)
	for name, c := range map[string]struct {
		sinks []uow.Sink
		emit  bool
		want  []int64 // of a connection that knows what goes over it, and of another one
	}{
		"plain sink":             {[]uow.Sink{s.sink}, true, []int64{1, 2}},
		"probe sink":             {[]uow.Sink{&probeSink{tableSink: s.sink}}, true, []int64{0, 1}},
		"probe sink, no events":  {[]uow.Sink{&probeSink{tableSink: s.sink}}, false, []int64{1, 1}},
		"probe sink without one": {[]uow.Sink{&probeSink{tableSink: s.sink, forget: true}}, true, []int64{1, 2}},
		"a plain sink behind it": {[]uow.Sink{&probeSink{tableSink: s.sink}, s.sink}, true, []int64{0, 2}},
		"one more probe sink":    {[]uow.Sink{s.sink, &probeSink{tableSink: s.sink}}, true, []int64{0, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			var probes []int64
			for _, watched := range []bool{true, false} {
				faults := &faults{watched: watched}
				units := s.manager(nil, s.broken(t, faults), c.sinks...)
				require.NoError(t, units.Do(t.Context(), func(_ context.Context, u *uow.Unit) error {
					if c.emit {
						u.Track(newAccount("a", "one"))
					}
					return nil
				}))
				probes = append(probes, faults.probes.Load())
			}
			require.Equal(t, c.want, probes)
		})
	}
}

// An id that is known is not asked for again, whatever follows the statement that returned it.
func TestIdentifiedSparesTheProbe(t *testing.T) {
	s := newService(t, nil)
	for name, fn := range map[string]func(ctx context.Context, u *uow.Unit) error{
		"last":          func(context.Context, *uow.Unit) error { return nil },
		"events follow": func(_ context.Context, u *uow.Unit) error { return u.Add("reports", []byte("x")) },
		"a unit follows": func(ctx context.Context, _ *uow.Unit) error {
			return s.units.Do(ctx, func(context.Context, *uow.Unit) error { return nil })
		},
		"a failed unit": func(ctx context.Context, _ *uow.Unit) error {
			_ = s.units.Do(ctx, func(context.Context, *uow.Unit) error { return errRefused })
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			faults := &faults{watched: true}
			s.units = s.manager(nil, s.broken(t, faults), s.sink)
			require.NoError(t, s.units.Do(t.Context(), identified(fn)))
			require.Zero(t, faults.probes.Load())
		})
	}
}

// identified has the unit know its id before fn runs.
func identified(fn func(context.Context, *uow.Unit) error) func(context.Context, *uow.Unit) error {
	return func(ctx context.Context, u *uow.Unit) error {
		var xid string
		if err := u.DB().NewRaw("SELECT pg_current_xact_id()::text").Scan(ctx, &xid); err != nil {
			return err
		}
		uow.Inside(u).Identified(xid)
		return fn(ctx, u)
	}
}

// Without a probe a transaction that cannot be committed is found all the same.
func TestIdentifiedAndYetNotAlive(t *testing.T) {
	for name, c := range map[string]struct {
		fn   func(ctx context.Context, s *service, u *uow.Unit)
		want string
	}{
		"an error was swallowed": {func(ctx context.Context, _ *service, u *uow.Unit) {
			_, _ = u.DB().ExecContext(ctx, "SELECT 1/0")
		}, "before COMMIT the transaction was found failed"},
		"rows were not closed": {func(ctx context.Context, _ *service, u *uow.Unit) {
			rows, err := u.DB().QueryContext(ctx, "SELECT generate_series(1, 100000)")
			require.NoError(t, err)
			require.True(t, rows.Next())
		}, "rows were not closed"},
		"the session has ended, and it shows": {func(ctx context.Context, s *service, u *uow.Unit) {
			s.terminate(t, u.DB())
			require.Error(t, note(ctx, u, "never"))
			s.logs.on = func(text string) { t.Error("there is nothing to ask:", text) }
		}, uow.ErrConnectionLost.Error()},
		"the session has ended": {func(_ context.Context, s *service, u *uow.Unit) { s.terminate(t, u.DB()) },
			uow.ErrConnectionLost.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, nil)
			err := s.units.Do(t.Context(), identified(func(ctx context.Context, u *uow.Unit) error {
				require.NoError(t, note(ctx, u, "x"))
				c.fn(ctx, s, u)
				return nil
			}), uow.WithoutRetry())
			require.ErrorContains(t, err, c.want)
			s.requireNothing(t)
		})
	}
}

func TestRowsThatWereNotClosed(t *testing.T) {
	s := newService(t, nil)
	err := s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		require.NoError(t, note(ctx, u, "x"))
		rows, err := u.DB().QueryContext(ctx, "SELECT generate_series(1, 100000)")
		require.NoError(t, err)
		require.True(t, rows.Next())
		return nil
	})
	require.ErrorContains(t, err, "rows were not closed")
	s.requireNothing(t)
}
