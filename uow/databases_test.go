package uow_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/uow"
)

// Two managers on one database would be two transactions: one could commit without the other, and wait for it for ever.
func TestAnotherManagerOnTheSameDatabase(t *testing.T) {
	s := newService(t, nil)
	for name, pool := range map[string]*bun.DB{
		"same pool":       bun.NewDB(s.DB.DB.DB, pgdialect.New()),
		"pool of its own": s.Another(t),
	} {
		t.Run(name, func(t *testing.T) {
			other := s.manager(nil, pool, &tableSink{})
			require.NoError(t, s.units.Do(t.Context(), func(ctx context.Context, _ *uow.Unit) error {
				err := other.Do(ctx, func(context.Context, *uow.Unit) error {
					t.Error("this would commit on its own")
					return nil
				})
				require.ErrorContains(t, err, "use one Manager per database")
				_, err = other.Begin(ctx)
				require.ErrorContains(t, err, "use one Manager per database")
				return nil
			}))
			require.NoError(t, other.Do(t.Context(), func(context.Context, *uow.Unit) error { return nil }), "beside it is fine")
		})
	}
}

// The pool of the unit's own database is never handed out for it.
func TestDBOfAnotherManagerOnTheSamePool(t *testing.T) {
	s := newService(t, nil)
	other := s.manager(nil, bun.NewDB(s.DB.DB.DB, pgdialect.New()), &tableSink{})
	require.NoError(t, s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		require.Equal(t, u.DB(), other.DB(ctx), "the transaction and not the pool")
		return nil
	}))
}

// newServiceApart is newService in a database of its own.
func newServiceApart(t *testing.T) *service {
	t.Helper()
	s := &service{DB: pgtest.OpenApart(t).DB, sink: &tableSink{}, logs: &logs{}}
	s.init(t, nil, s.DB.DB)
	return s
}

func TestUnitWithinThatOfAnotherDatabase(t *testing.T) {
	a, b := newService(t, nil), newServiceApart(t)
	err := a.units.Do(t.Context(), func(ctx context.Context, outer *uow.Unit) error {
		outer.Track(newAccount("a", "one"))
		require.NoError(t, note(ctx, outer, "a"))
		require.NoError(t, b.units.Do(ctx, func(ctx context.Context, inner *uow.Unit) error {
			found := uow.MustFromContext(ctx)
			require.True(t, uow.Same(inner, found))
			require.Equal(t, outer.DB(), a.units.DB(ctx))
			require.Equal(t, inner.DB(), b.units.DB(ctx))
			inner.Track(newAccount("b", "two"))
			// A savepoint of the outer one, from within the inner one.
			require.NoError(t, a.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error { return note(ctx, u, "a2") }))
			// And none beside the outer one, from however far within.
			again := a.manager(nil, a.Another(t), a.sink)
			require.ErrorContains(t, again.Do(ctx, func(context.Context, *uow.Unit) error { return nil }), "use one Manager per database")
			return note(ctx, inner, "b")
		}))
		require.Equal(t, []string{"b"}, b.notes(t), "a transaction of its own")
		require.Equal(t, []string{"account b v1 two"}, b.sunk(t))
		found := uow.MustFromContext(ctx)
		require.True(t, uow.Same(outer, found))
		return errRefused
	})
	require.ErrorIs(t, err, errRefused)
	a.requireNothing(t)
	require.Equal(t, []string{"b"}, b.notes(t), "it stays when the outer one is rolled back")
}

// A unit of another database is done again with the function around it: it has committed by then.
func TestRetryRunsTheUnitOfAnotherDatabaseAgain(t *testing.T) {
	a, b := newService(t, nil), newServiceApart(t)
	tries := 0
	require.NoError(t, a.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		tries++
		require.NoError(t, b.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
			_, err := u.DB().NewRaw("INSERT INTO sunk (line) VALUES ('again')").Exec(ctx)
			return err
		}))
		if tries == 1 {
			return uow.ErrConflict
		}
		return note(ctx, u, "a")
	}))
	require.Equal(t, []string{"a"}, a.notes(t))
	require.Equal(t, []string{"again", "again"}, b.sunk(t))
}
