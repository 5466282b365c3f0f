package uow_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/uow"
)

func TestAfterCommit(t *testing.T) {
	s := newService(t, nil)
	var order []string
	hook := func(name string) func(context.Context) {
		return func(ctx context.Context) {
			require.Equal(t, []string{"x"}, s.notes(t), "committed by now")
			require.Zero(t, s.Stats().InUse, "the connection is free by now")
			require.NoError(t, ctx.Err(), "not cancelled with the caller's context")
			require.Equal(t, "acme", event.TenantFrom(ctx), "but with its values")
			order = append(order, name)
		}
	}
	ctx, cancel := context.WithCancel(event.WithTenant(t.Context(), "acme"))
	defer cancel()
	require.NoError(t, s.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		u.AfterCommit(hook("1"))
		u.AfterCommit(func(context.Context) { cancel() })
		require.NoError(t, s.units.Do(ctx, func(_ context.Context, u *uow.Unit) error {
			u.AfterCommit(hook("2"))
			return nil
		}))
		require.ErrorIs(t, s.units.Do(ctx, func(_ context.Context, u *uow.Unit) error {
			u.AfterCommit(hook("never"))
			return errRefused
		}), errRefused)
		u.AfterCommit(hook("3"))
		return note(ctx, u, "x")
	}))
	require.Equal(t, []string{"1", "2", "3"}, order)
}

// After COMMIT nothing may look as if the unit had failed.
func TestPanicsAfterCommitAreLogged(t *testing.T) {
	s := newService(t, nil)
	ran := false
	units := s.manager(nil, s.DB.DB, panicking{s.sink}, s.sink)
	require.NoError(t, units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		u.Track(newAccount("a", "one"))
		u.AfterCommit(func(context.Context) { panic("in a hook") })
		u.AfterCommit(nil)
		u.AfterCommit(func(context.Context) { ran = true })
		return note(ctx, u, "x")
	}))
	require.True(t, ran, "the hooks behind it run")
	require.Len(t, s.sink.committed, 1, "and the sinks behind it are told")
	require.Equal(t, []string{"x"}, s.notes(t))
	require.Contains(t, s.logs.all(), "in=AfterCommit panic=in a hook")
	require.Contains(t, s.logs.all(), "in=Committed panic=in a sink")
}

type panicking struct{ *tableSink }

func (panicking) Committed(context.Context, []event.Envelope) { panic("in a sink") }

func TestHookBeginsAUnitOfItsOwn(t *testing.T) {
	s := newService(t, nil)
	s.SetMaxOpenConns(1) // the connection has to be free by then
	require.NoError(t, s.units.Do(t.Context(), func(inner context.Context, u *uow.Unit) error {
		u.AfterCommit(func(context.Context) {
			_, within := uow.FromContext(inner)
			require.False(t, within)
			require.NoError(t, s.units.Do(inner, func(ctx context.Context, u *uow.Unit) error { return note(ctx, u, "hook") }))
		})
		return note(inner, u, "x")
	}))
	require.Equal(t, []string{"x", "hook"}, s.notes(t))
}
