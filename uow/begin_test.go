package uow_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/uow"
)

func TestBeginAndCommit(t *testing.T) {
	s := newService(t, nil)
	tx, err := s.units.Begin(t.Context())
	require.NoError(t, err)
	found, ok := uow.FromContext(tx.Context())
	require.True(t, ok)
	require.True(t, uow.Same(tx.Unit, found))
	a := newAccount("a", "one")
	tx.Track(a)
	hooked := false
	tx.AfterCommit(func(context.Context) { hooked = true })
	require.NoError(t, note(tx.Context(), tx.Unit, "x"))
	require.NoError(t, s.units.Do(tx.Context(), func(ctx context.Context, u *uow.Unit) error { return note(ctx, u, "in a savepoint") }))
	require.Empty(t, s.notes(t))
	require.NoError(t, tx.Commit())
	require.True(t, hooked)
	require.Empty(t, a.RecordedEvents())
	require.Equal(t, []string{"x", "in a savepoint"}, s.notes(t))
	require.Equal(t, []string{"account a v1 one"}, s.sunk(t))

	require.ErrorContains(t, tx.Commit(), "committed or rolled back already")
	require.NoError(t, tx.Rollback(), "as a deferred one does")
	require.Equal(t, []string{"x", "in a savepoint"}, s.notes(t))
	require.Panics(t, func() { tx.Track(a) })
	require.Zero(t, s.Stats().InUse)
}

func TestBeginAndRollback(t *testing.T) {
	s := newService(t, nil)
	tx, err := s.units.Begin(t.Context())
	require.NoError(t, err)
	a := newAccount("a", "one")
	tx.Track(a)
	require.NoError(t, note(tx.Context(), tx.Unit, "x"))
	require.NoError(t, tx.Rollback())
	require.NoError(t, tx.Rollback())
	require.ErrorContains(t, tx.Commit(), "committed or rolled back already")
	require.Len(t, a.RecordedEvents(), 1)
	s.requireNothing(t)
}

// Begin within a unit is a savepoint, within Do and within Begin.
func TestBeginWithinAUnit(t *testing.T) {
	s := newService(t, nil)
	outer, err := s.units.Begin(t.Context())
	require.NoError(t, err)
	for _, c := range []struct {
		text string
		end  func(*uow.Tx) error
	}{{"kept", (*uow.Tx).Commit}, {"dropped", (*uow.Tx).Rollback}} {
		inner, err := s.units.Begin(outer.Context())
		require.NoError(t, err)
		inner.Track(newAccount(c.text, "one"))
		require.NoError(t, note(inner.Context(), inner.Unit, c.text))
		require.NoError(t, c.end(inner))
		require.ErrorContains(t, inner.Commit(), "already")
		require.NoError(t, inner.Rollback())
	}
	require.NoError(t, s.units.Do(outer.Context(), func(ctx context.Context, u *uow.Unit) error {
		inner, err := s.units.Begin(ctx)
		require.NoError(t, err)
		require.NoError(t, note(ctx, u, "in both"))
		return inner.Commit()
	}))
	require.NoError(t, outer.Commit())
	require.Equal(t, []string{"kept", "in both"}, s.notes(t))
	require.Equal(t, []string{"account kept v1 one"}, s.sunk(t))
}

// A savepoint that was forgotten fails its unit: nobody knows whether its work is wanted.
func TestUnitWithASavepointThatIsStillOpen(t *testing.T) {
	s := newService(t, nil)
	outer, err := s.units.Begin(t.Context())
	require.NoError(t, err)
	inner, err := s.units.Begin(outer.Context())
	require.NoError(t, err)
	require.NoError(t, note(inner.Context(), inner.Unit, "x"))
	require.ErrorContains(t, outer.Commit(), "end each Tx of Begin")
	require.NoError(t, inner.Rollback())
	s.requireNothing(t)

	outer, err = s.units.Begin(t.Context())
	require.NoError(t, err)
	defer outer.Rollback()
	middle, err := s.units.Begin(outer.Context())
	require.NoError(t, err)
	_, err = s.units.Begin(middle.Context())
	require.NoError(t, err)
	require.ErrorContains(t, middle.Commit(), "end each Tx of Begin")
	require.ErrorContains(t, outer.Commit(), "end each Tx of Begin")
	s.requireNothing(t)
}

// A Tx is not run again, and says why it failed.
func TestBeginIsRunOnce(t *testing.T) {
	s := newService(t, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	tx, err := s.units.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, note(ctx, tx.Unit, "x"))
	cancel(errRefused)
	require.ErrorIs(t, tx.Commit(), errRefused)
	s.requireNothing(t)

	other := s.manager(nil, s.DB.DB, s.sink)
	tx, err = s.units.Begin(t.Context())
	require.NoError(t, err)
	_, err = other.Begin(tx.Context())
	require.ErrorContains(t, err, "another Manager on the same database")
	require.NoError(t, tx.Rollback())
}

// A panic comes out of Commit, and leaves the deferred Rollback nothing to do.
func TestPanicWithinCommit(t *testing.T) {
	s := newService(t, nil)
	s.sink.after = func(context.Context, bun.IDB) error { panic("sink") }
	require.PanicsWithValue(t, "sink", func() {
		tx, err := s.units.Begin(t.Context())
		require.NoError(t, err)
		defer tx.Rollback()
		tx.Track(newAccount("a", "one"))
		require.NoError(t, note(tx.Context(), tx.Unit, "x"))
		_ = tx.Commit()
	})
	s.requireNothing(t)
}
