package uow_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/uow"
)

// ruled is a service whose rule refuses the text "refuse", and writes down what else it has seen.
func ruled(t *testing.T) (s *service, units *uow.Manager, seen *[]string) {
	t.Helper()
	s = newService(t, nil)
	units, seen = s.handling(t, quick()), &[]string{}
	uow.On(units, func(ctx context.Context, u *uow.Unit, e changed) error {
		*seen = append(*seen, e.Text)
		switch e.Text {
		case "refuse":
			require.NoError(t, note(ctx, u, "never"))
			return errRefused
		case "conflict":
			return uow.ErrConflict
		case "panic":
			panic("planted")
		}
		return note(ctx, u, "rule "+e.Text)
	})
	return s, units, seen
}

func tracking(text string) func(context.Context, *uow.Unit) error {
	return func(ctx context.Context, u *uow.Unit) error {
		u.Track(newAccount(text, text))
		return note(ctx, u, text)
	}
}

// A middleware has a unit around code that has its own. The rules hold where that code can do something about it.
func TestNestedChecks(t *testing.T) {
	s, units, seen := ruled(t)
	require.NoError(t, units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		require.ErrorIs(t, units.Do(ctx, tracking("refuse")), errRefused, "to the code that began it")
		require.NoError(t, u.Retryable())
		require.NoError(t, units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
			require.NoError(t, units.Do(ctx, tracking("one")))
			require.Equal(t, []string{"refuse"}, *seen, "not before the outermost one ends")
			return nil
		}))
		require.Equal(t, []string{"refuse", "one"}, *seen)
		// A unit that is begun by hand, and a middleware within the other one.
		tx, err := units.Begin(ctx)
		require.NoError(t, err)
		require.NoError(t, tracking("refuse")(tx.Context(), tx.Unit))
		require.ErrorIs(t, tx.Commit(), errRefused)
		require.NoError(t, units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
			require.ErrorIs(t, units.Do(ctx, tracking("refuse")), errRefused)
			return tracking("its own")(ctx, u)
		}, uow.WithNestedChecks()))
		require.Equal(t, []string{"refuse", "one", "refuse", "refuse", "its own"}, *seen)
		return tracking("two")(ctx, u)
	}, uow.WithNestedChecks()))
	require.Equal(t, []string{"refuse", "one", "refuse", "refuse", "its own", "two"}, *seen, "each once")
	require.Equal(t, []string{"one", "rule one", "its own", "rule its own", "two", "rule two"}, s.notes(t))
	require.Equal(t, []string{"account one v1 one", "account its own v1 its own", "account two v1 two"}, s.sunk(t))
}

// WithNestedChecks on a middle unit changes nothing for the units within it: the outermost unit checks their rules at its end.
func TestNestedChecksWithinAUnit(t *testing.T) {
	_, units, seen := ruled(t)
	require.ErrorIs(t, units.Do(t.Context(), func(ctx context.Context, _ *uow.Unit) error {
		require.NoError(t, units.Do(ctx, func(ctx context.Context, _ *uow.Unit) error {
			return units.Do(ctx, tracking("refuse"))
		}, uow.WithNestedChecks()))
		require.Empty(t, *seen)
		return nil
	}), errRefused)
}

func TestInnerRuleThatCallsForAnotherRun(t *testing.T) {
	_, units, _ := ruled(t)
	tries := 0
	require.ErrorIs(t, units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		tries++
		_ = units.Do(ctx, tracking("conflict"))
		return u.Retryable()
	}, uow.WithNestedChecks()), uow.ErrConflict)
	require.Equal(t, 5, tries)
}

// A rule that panics undoes its unit, also if code around it recovers.
func TestInnerRuleThatPanics(t *testing.T) {
	s, units, _ := ruled(t)
	require.NoError(t, units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		require.Panics(t, func() { _ = units.Do(ctx, tracking("panic")) })
		require.Panics(t, func() {
			tx, err := units.Begin(ctx)
			require.NoError(t, err)
			defer func() { require.NoError(t, tx.Rollback()) }()
			require.NoError(t, tracking("panic")(tx.Context(), tx.Unit))
			_ = tx.Commit()
		})
		return note(ctx, u, "x")
	}, uow.WithNestedChecks()))
	require.Equal(t, []string{"x"}, s.notes(t))
}

// Other reasons to fail at the end of a unit also fail an inner unit, as far as they are known then.
func TestInnerUnitsThatCannotBeEmitted(t *testing.T) {
	s := newService(t, nil)
	inner := func(units *uow.Manager, fn func(context.Context, *uow.Unit) error) (err error) {
		require.NoError(t, units.Do(t.Context(), func(ctx context.Context, _ *uow.Unit) error {
			err = units.Do(ctx, fn)
			return nil
		}, uow.WithNestedChecks()))
		return err
	}
	none := s.manager(nil, s.DB.DB)
	require.ErrorIs(t, inner(none, tracking("x")), uow.ErrNoSink)
	require.ErrorIs(t, inner(none, func(_ context.Context, u *uow.Unit) error { return u.Add("x", []byte("x")) }), uow.ErrNoSink)
	require.NoError(t, inner(none, func(_ context.Context, u *uow.Unit) error {
		u.Track(newAccount("a"))
		return nil
	}))
	require.ErrorIs(t, inner(s.units, func(ctx context.Context, u *uow.Unit) error {
		a := newAccount("a", "one")
		_ = s.units.Do(ctx, func(_ context.Context, u *uow.Unit) error {
			u.Track(a)
			return errRefused
		})
		u.Track(a)
		return nil
	}), uow.ErrStale)
	s.requireNothing(t)
}

// As many units as the code likes, as if nobody had one around them; and each is held to the limit.
func TestInnerUnitsCountTheirEventsThemselves(t *testing.T) {
	s := newService(t, nil)
	units := s.handling(t, &uow.Config{MaxHandled: 3})
	uow.On(units, func(_ context.Context, u *uow.Unit, e changed) error {
		if e.Text == "circle" {
			u.Track(newAccount("again", "circle"))
		}
		return nil
	})
	three := func(name string) func(context.Context, *uow.Unit) error {
		return func(_ context.Context, u *uow.Unit) error {
			u.Track(newAccount(name, "one", "two", "three"))
			return nil
		}
	}
	require.NoError(t, units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		for _, name := range []string{"a", "b"} {
			require.NoError(t, units.Do(ctx, three(name)))
			require.ErrorContains(t, units.Do(ctx, tracking("circle")), "more than 3 events in one unit")
		}
		return three("its own")(ctx, u)
	}, uow.WithNestedChecks()))
	require.Len(t, s.sunk(t), 9)

	require.ErrorContains(t, units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		require.NoError(t, three("a")(ctx, u))
		return units.Do(ctx, three("b"))
	}), "more than 3 events in one unit", "all of it is one unit, for which nobody else has one around it")
}
