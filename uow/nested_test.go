package uow_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/uow"
)

func TestNestedSuccessIsMerged(t *testing.T) {
	s := newService(t, nil)
	a, b := newAccount("a", "one"), newAccount("b", "two")
	require.NoError(t, s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		u.Track(a)
		require.NoError(t, s.units.Do(ctx, func(ctx context.Context, inner *uow.Unit) error {
			require.False(t, uow.Same(u, inner))
			found := uow.MustFromContext(ctx)
			require.True(t, uow.Same(inner, found))
			require.Equal(t, u.DB(), inner.DB(), "one transaction")
			inner.Track(b, a)
			a.Record(changed{"three"})
			return note(ctx, inner, "x")
		}, uow.WithReadOnly(), uow.WithoutRetry()), "the options of the transaction have no effect here")
		require.NoError(t, u.Add("reports", []byte("four")))
		return note(ctx, u, "y")
	}))
	require.Equal(t, []string{"x", "y"}, s.notes(t))
	require.Equal(t, []string{"account a v1 one", "account a v2 three", "account b v1 two", "reports four"}, s.sunk(t))
	require.Empty(t, a.RecordedEvents())
	require.Empty(t, b.RecordedEvents())
}

func TestNestedFailureIsDropped(t *testing.T) {
	s := newService(t, nil)
	a, b := newAccount("a", "one"), newAccount("b", "two")
	for name, fail := range map[string]func(ctx context.Context) error{
		"error": func(context.Context) error { return errRefused },
		"panic": func(context.Context) error { panic(errRefused) },
		"deeper": func(ctx context.Context) error {
			return s.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
				u.Track(newAccount("c", "three"))
				_ = note(ctx, u, "deeper")
				return errRefused
			})
		},
		"statement": func(ctx context.Context) error {
			_, err := s.units.DB(ctx).ExecContext(ctx, "SELECT 1/0")
			require.Error(t, err)
			return errRefused
		},
	} {
		t.Run(name, func(t *testing.T) {
			s.sink.committed = nil
			_, err := s.DB.Exec("TRUNCATE notes, sunk")
			require.NoError(t, err)
			a.Record(changed{name})
			require.NoError(t, s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
				u.Track(a)
				err := recovered(func() error {
					return s.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
						u.Track(b)
						require.NoError(t, u.Add("reports", []byte("never")))
						u.AfterCommit(func(context.Context) { t.Error("never") })
						require.NoError(t, note(ctx, u, "inner"))
						return fail(ctx)
					})
				})
				require.ErrorIs(t, err, errRefused)
				return note(ctx, u, "outer")
			}))
			require.Equal(t, []string{"outer"}, s.notes(t))
			require.Len(t, s.sink.committed, len(s.sunk(t)))
			require.NotContains(t, fmt.Sprint(s.sunk(t)), "reports")
			require.NotContains(t, fmt.Sprint(s.sunk(t)), "account b")
			require.Len(t, b.RecordedEvents(), 1, "b is as it was")
		})
	}
}

func TestNestedPanicGoesOn(t *testing.T) {
	s := newService(t, nil)
	require.PanicsWithValue(t, "boom", func() {
		_ = s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
			_ = note(ctx, u, "outer")
			return s.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
				_ = note(ctx, u, "inner")
				panic("boom")
			})
		})
	})
	s.requireNothing(t)
}

// The instance holds events and state of work that is undone. Emitting it would publish ghosts.
func TestStaleAggregates(t *testing.T) {
	s := newService(t, nil)
	for name, c := range map[string]func(ctx context.Context, u *uow.Unit, a *account){
		"tracked outside, changed inside": func(ctx context.Context, u *uow.Unit, a *account) {
			u.Track(a)
			s.fail(ctx, func(context.Context, *uow.Unit) { a.Record(changed{"ghost"}) })
		},
		"tracked two levels outside": func(ctx context.Context, u *uow.Unit, a *account) {
			u.Track(a)
			_ = s.units.Do(ctx, func(ctx context.Context, _ *uow.Unit) error {
				s.fail(ctx, func(context.Context, *uow.Unit) { a.Record(changed{"ghost"}) })
				return nil
			})
		},
		"tracked inside, and again": func(ctx context.Context, u *uow.Unit, a *account) {
			s.fail(ctx, func(_ context.Context, u *uow.Unit) { u.Track(a) })
			u.Track(a)
		},
		"tracked inside, and again in another one": func(ctx context.Context, _ *uow.Unit, a *account) {
			s.fail(ctx, func(_ context.Context, u *uow.Unit) { u.Track(a) })
			_ = s.units.Do(ctx, func(_ context.Context, u *uow.Unit) error { u.Track(a); return nil })
		},
		"tracked in a unit that succeeded within a unit that failed": func(ctx context.Context, u *uow.Unit, a *account) {
			s.fail(ctx, func(ctx context.Context, _ *uow.Unit) {
				_ = s.units.Do(ctx, func(_ context.Context, u *uow.Unit) error { u.Track(a); return nil })
			})
			u.Track(a)
		},
		"through the outer unit": func(ctx context.Context, u *uow.Unit, a *account) {
			s.fail(ctx, func(context.Context, *uow.Unit) { u.Track(a) })
			u.Track(a)
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAccount("a", "one")
			err := s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
				c(ctx, u, a)
				return note(ctx, u, "x")
			})
			require.ErrorIs(t, err, uow.ErrStale)
			require.ErrorContains(t, err, "account a")
			s.requireNothing(t)
		})
	}
}

// fail runs a unit that fails after fn.
func (s *service) fail(ctx context.Context, fn func(ctx context.Context, u *uow.Unit)) {
	_ = s.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		fn(ctx, u)
		return errRefused
	})
}

func TestNotEverythingIsStale(t *testing.T) {
	s := newService(t, nil)
	a, again := newAccount("a", "one"), newAccount("b", "again")
	require.NoError(t, s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		u.Track(a)
		s.fail(ctx, func(_ context.Context, u *uow.Unit) { u.Track(newAccount("b", "failed")) })
		a.Record(changed{"two"}) // after the failure, by the outer unit
		u.Track(again)           // loaded again: another instance
		return nil
	}))
	require.Equal(t, []string{"account a v1 one", "account a v2 two", "account b v1 again"}, s.sunk(t))
}

// A statement of the outer unit's handle within an inner one is undone with it, and so is what is announced by it.
func TestOuterHandleWithinAnInnerUnit(t *testing.T) {
	s := newService(t, nil)
	require.NoError(t, s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		s.fail(ctx, func(context.Context, *uow.Unit) {
			require.NoError(t, note(ctx, u, "ghost"))
			require.NoError(t, u.Add("reports", []byte("ghost")))
			u.AfterCommit(func(context.Context) { t.Error("ghost") })
		})
		return s.units.Do(ctx, func(context.Context, *uow.Unit) error {
			require.NoError(t, note(ctx, u, "kept"))
			return u.Add("reports", []byte("kept"))
		})
	}))
	require.Equal(t, []string{"kept"}, s.notes(t))
	require.Equal(t, []string{"reports kept"}, s.sunk(t))
}

// The context of an outer unit, used within an inner one by mistake, must not take events out of the savepoint.
func TestOuterContextWithinAnInnerUnit(t *testing.T) {
	s := newService(t, nil)
	require.NoError(t, s.units.Do(t.Context(), func(outer context.Context, _ *uow.Unit) error {
		s.fail(outer, func(context.Context, *uow.Unit) {
			require.NoError(t, s.units.Do(outer, func(ctx context.Context, u *uow.Unit) error {
				u.Track(newAccount("a", "ghost"))
				return note(ctx, u, "ghost")
			}))
		})
		return nil
	}))
	s.requireNothing(t)
}

func TestManyFailedUnitsLeaveNoSavepoints(t *testing.T) {
	s := newService(t, nil)
	require.ErrorIs(t, s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		for i := range 3 {
			s.fail(ctx, func(ctx context.Context, u *uow.Unit) { require.NoError(t, note(ctx, u, fmt.Sprint(i))) })
		}
		_, err := u.DB().ExecContext(ctx, "RELEASE SAVEPOINT oncebox_1")
		require.Equal(t, "3B001", pgerr.Code(err), "there is none left")
		return errRefused
	}), errRefused)
}

func TestSavepointInAFailedTransaction(t *testing.T) {
	s := newService(t, nil)
	err := s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		_, err := u.DB().ExecContext(ctx, "SELECT 1/0")
		require.Error(t, err)
		err = s.units.Do(ctx, func(context.Context, *uow.Unit) error {
			t.Error("there is no savepoint to run behind")
			return nil
		})
		require.ErrorContains(t, err, "uow: savepoint: ")
		u.Track(newAccount("a", "one"))
		return nil
	})
	require.Equal(t, "25P02", pgerr.Code(err))
	s.requireNothing(t)
}

// A statement within the inner unit failed and nobody looked: the savepoint cannot be released.
func TestSwallowedErrorWithinAnInnerUnit(t *testing.T) {
	s := newService(t, nil)
	a := newAccount("a", "one")
	require.NoError(t, s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		err := s.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
			u.Track(a)
			_, err := u.DB().ExecContext(ctx, "SELECT 1/0")
			require.Error(t, err)
			return nil
		})
		require.ErrorContains(t, err, "uow: release savepoint: ")
		require.Equal(t, "25P02", pgerr.Code(err))
		return note(ctx, u, "outer")
	}))
	require.Equal(t, []string{"outer"}, s.notes(t))
	require.Empty(t, s.sunk(t))
}

// The work of the inner unit cannot be undone, and the outer function ignores that. Its SQL would be there
// without its events.
func TestUndoThatFailsDoomsTheUnit(t *testing.T) {
	s := newService(t, nil)
	for name, fail := range map[string]func() error{
		"error": func() error { return errRefused },
		"panic": func() error { panic(errRefused) },
	} {
		t.Run(name, func(t *testing.T) {
			var rows *sql.Rows
			err := s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
				err := recovered(func() error {
					return s.units.Do(ctx, func(ctx context.Context, u *uow.Unit) (err error) {
						u.Track(newAccount("a", "one"))
						require.NoError(t, note(ctx, u, "inner"))
						rows, err = u.DB().QueryContext(ctx, "SELECT generate_series(1, 100000)")
						require.NoError(t, err)
						return fail() // with the rows open: the connection is busy, no statement gets through
					})
				})
				require.ErrorIs(t, err, errRefused)
				require.NoError(t, rows.Close())
				return nil
			})
			require.ErrorContains(t, err, "uow: the unit cannot be committed: uow: roll back to savepoint: ")
			s.requireNothing(t)
		})
	}
}

// The caller gave up within the inner unit. The savepoint is undone all the same.
func TestCancelledWithinAnInnerUnit(t *testing.T) {
	s := newService(t, nil)
	require.NoError(t, s.units.Do(t.Context(), func(outer context.Context, u *uow.Unit) error {
		ctx, cancel := context.WithCancel(outer)
		defer cancel()
		err := s.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
			require.NoError(t, note(ctx, u, "inner"))
			cancel()
			return nil
		})
		require.ErrorIs(t, err, context.Canceled)
		return note(outer, u, "outer")
	}))
	require.Equal(t, []string{"outer"}, s.notes(t))
}

// Savepoints are nested by their nature: the first to end would take the other one's work with it.
func TestUnitsAtTheSameTimeFailTheUnit(t *testing.T) {
	s := newService(t, nil)
	for name, end := range map[string]error{"succeed": nil, "fail": errRefused} {
		t.Run(name, func(t *testing.T) {
			err := s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
				first, second := make(chan struct{}), make(chan struct{})
				done := make(chan error)
				go func() {
					done <- s.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
						close(first)
						<-second
						return end
					})
				}()
				<-first
				_ = s.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
					u.Track(newAccount("a", "one"))
					require.NoError(t, note(ctx, u, "x"))
					close(second)
					require.ErrorContains(t, <-done, "at the same time")
					return nil
				})
				return nil // as if nothing had happened
			})
			require.ErrorContains(t, err, "at the same time")
			s.requireNothing(t)
		})
	}
}

func TestInnerUnitThatOutlivesTheFunction(t *testing.T) {
	s := newService(t, nil)
	begun, end, done := make(chan struct{}), make(chan struct{}), make(chan error)
	err := s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		go func() {
			done <- s.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
				close(begun)
				<-end
				return nil
			})
		}()
		<-begun
		return note(ctx, u, "x")
	})
	close(end)
	require.ErrorContains(t, err, "let none outlive the function around it")
	require.Error(t, <-done)
	s.requireNothing(t)
}

func TestGoroutinesOfAUnit(t *testing.T) {
	s := newService(t, nil)
	const n = 8
	require.NoError(t, s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		errs := make(chan error)
		for i := range n {
			go func() {
				u.Track(newAccount(fmt.Sprint(i), "one"))
				u.AfterCommit(func(context.Context) {})
				_, _ = uow.FromContext(ctx)
				errs <- u.Add("reports", []byte("x"))
			}()
		}
		for range n {
			require.NoError(t, <-errs)
		}
		return nil
	}))
	require.Len(t, s.sunk(t), 2*n)
}

// The rule of the documentation: an event belongs to the transaction, not to the context that was around before it.
func TestRecorderOfAnAggregateThatIsTrackedLate(t *testing.T) {
	s := newService(t, nil)
	a := newAccount("a")
	require.NoError(t, s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		a.Record(changed{"before"})
		require.NoError(t, s.units.Do(ctx, func(context.Context, *uow.Unit) error {
			a.Record(changed{"inside"})
			return nil
		}))
		u.Track(a)
		a.Record(changed{"after"})
		return nil
	}))
	require.Equal(t, []string{"account a v1 before", "account a v2 inside", "account a v3 after"}, s.sunk(t))
	require.Equal(t, event.Metadata{}, s.sink.envelopes[0].Metadata)
}
