package uow_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/uow"
)

// opened is an event that nothing in these tests handles but once.
type opened struct{ Text string }

func (opened) EventType() string { return "account.opened" }

func (s *service) handling(t *testing.T, cfg *uow.Config) *uow.Manager {
	t.Helper()
	if cfg == nil {
		cfg = &uow.Config{}
	}
	cfg.Registry = event.NewRegistry()
	event.Register[changed](cfg.Registry)
	event.Register[opened](cfg.Registry)
	return s.manager(cfg, s.DB.DB, s.sink)
}

// U9: what a handler causes is handled as well, once, in order, and is part of the unit.
func TestHandlersRunToAFixpoint(t *testing.T) {
	s := newService(t, nil)
	units := s.handling(t, nil)
	a, b := newAccount("a"), newAccount("b")
	var calls []string
	uow.On(units, func(ctx context.Context, u *uow.Unit, e changed) error {
		calls = append(calls, "first "+e.Text)
		found, ok := uow.FromContext(ctx)
		require.True(t, ok)
		require.True(t, uow.Same(u, found))
		switch e.Text {
		case "one":
			b.Record(changed{"caused by one"})
			u.Track(b)
		case "caused by one":
			a.Record(&opened{"caused by b"}) // of an aggregate that has been looked at already
			return note(ctx, u, "from the handler")
		}
		return nil
	})
	uow.On(units, func(_ context.Context, _ *uow.Unit, e changed) error {
		calls = append(calls, "second "+e.Text)
		return nil
	})
	uow.On(units, func(ctx context.Context, u *uow.Unit, e opened) error {
		calls = append(calls, e.Text)
		return units.Do(ctx, func(ctx context.Context, u *uow.Unit) error { return note(ctx, u, "from a savepoint") })
	})
	a.Record(changed{"one"})
	a.Record(changed{"two"})
	require.NoError(t, units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		require.NoError(t, units.Do(ctx, func(_ context.Context, u *uow.Unit) error {
			u.Track(a)
			return nil
		}))
		require.Empty(t, calls, "not before the outermost function has returned")
		return nil
	}))
	require.Equal(t, []string{
		"first one", "second one", "first two", "second two", "first caused by one", "second caused by one", "caused by b",
	}, calls)
	require.Equal(t, []string{"from the handler", "from a savepoint"}, s.notes(t))
	require.Equal(t, []string{"account a v1 one", "account a v2 two", "account a v3 caused by b", "account b v1 caused by one"}, s.sunk(t))
}

// On is for what aggregates have recorded. What was added by hand passes it by, and a caller who gave up ends it.
func TestWhatIsNotHandled(t *testing.T) {
	s := newService(t, nil)
	units := s.handling(t, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	calls := 0
	uow.On(units, func(context.Context, *uow.Unit, changed) error {
		calls++
		cancel(errRefused)
		return nil
	})
	require.NoError(t, units.Do(ctx, func(_ context.Context, u *uow.Unit) error { return u.Add("reports", changed{"added"}) }))
	require.Zero(t, calls)
	require.ErrorIs(t, units.Do(ctx, func(_ context.Context, u *uow.Unit) error {
		u.Track(newAccount("a", "one", "two"))
		return nil
	}), errRefused)
	require.Equal(t, 1, calls, "not for the second one")
}

func TestHandlerThatFailsRollsBack(t *testing.T) {
	s := newService(t, nil)
	units := s.handling(t, nil)
	uow.On(units, func(ctx context.Context, u *uow.Unit, _ changed) error {
		require.NoError(t, note(ctx, u, "never"))
		return errRefused
	})
	_, err := change(t.Context(), units, newAccount("a", "one"), "x")
	require.ErrorIs(t, err, errRefused)
	require.ErrorContains(t, err, "uow: handle account.changed: ")
	s.requireNothing(t)
}

func TestHandlersWithoutEnd(t *testing.T) {
	for limit, want := range map[int]int{10: 10, 0: 1000} {
		s := newService(t, nil)
		units := s.handling(t, &uow.Config{MaxHandled: limit})
		calls := 0
		a := newAccount("a", "one")
		uow.On(units, func(_ context.Context, u *uow.Unit, _ changed) error {
			calls++
			a.Record(changed{fmt.Sprint("again ", calls)})
			return nil
		})
		_, err := change(t.Context(), units, a, "x")
		require.ErrorContains(t, err, fmt.Sprintf("more than %d events in one unit, the latest is account.changed of account a", want))
		require.Equal(t, want, calls)
		s.requireNothing(t)
	}
}

func TestHandlersWithoutALimit(t *testing.T) {
	s := newService(t, nil)
	units := s.handling(t, &uow.Config{MaxHandled: -1})
	calls := 0
	a := newAccount("a", "one")
	uow.On(units, func(context.Context, *uow.Unit, changed) error {
		if calls++; calls < 1500 { // more than the default
			a.Record(changed{"again"})
		}
		return nil
	})
	_, err := change(t.Context(), units, a, "x")
	require.NoError(t, err)
	require.Equal(t, 1500, calls)
}

// Two instances of one aggregate would announce the same version twice.
func TestVersionsFollowOneAnother(t *testing.T) {
	s := newService(t, nil)
	versioned := func(version int64, text string) *account {
		a := newAccount("a", text)
		a.Version = version
		return a
	}
	track := func(aggregates ...event.Aggregate) error {
		return s.units.Do(t.Context(), func(_ context.Context, u *uow.Unit) error {
			u.Track(aggregates...)
			return nil
		})
	}
	err := track(versioned(4, "five"), versioned(4, "five as well"))
	require.ErrorContains(t, err, "account a: the event account.changed leads to version 5, and the one before it in this unit to 5")
	s.requireNothing(t)
	require.NoError(t, track(versioned(4, "five"), versioned(5, "six"), newAccount("b", "one")))

	gap := func(tenant string) error {
		return s.units.Do(t.Context(), func(_ context.Context, u *uow.Unit) error {
			require.NoError(t, u.Add("x", []byte("1"), event.WithAggregate("account", "c", 1)))
			return u.Add("x", []byte("2"), event.WithAggregate("account", "c", 3), event.WithTenantID(tenant))
		})
	}
	require.ErrorContains(t, gap(""), "leads to version 3")
	require.NoError(t, gap("another"))
}

// A rule emits for the tenant of the aggregate that it looks at, also if the context with which that was tracked has ended.
func TestHandlersHaveTheContextOfWhatWasTracked(t *testing.T) {
	s := newService(t, nil)
	sink := &envelopes{}
	units := s.manager(nil, s.DB.DB, sink)
	uow.On(units, func(ctx context.Context, u *uow.Unit, _ changed) error {
		require.NoError(t, ctx.Err())
		require.NoError(t, u.Add("by-unit", []byte("x")))
		u, _ = uow.FromContext(ctx)
		return u.Add("by-context", []byte("x"))
	})
	require.NoError(t, units.Do(t.Context(), func(ctx context.Context, _ *uow.Unit) error {
		for _, tenant := range []string{"t1", "t2"} {
			within, cancel := context.WithCancel(event.WithTenant(ctx, tenant))
			u := uow.MustFromContext(within)
			u.Track(newAccount(tenant, "x"))
			cancel()
		}
		return nil
	}))
	var got []string
	for _, e := range sink.events {
		got = append(got, e.TenantID+" "+e.Topic)
	}
	require.Equal(t, []string{"t1 account", "t2 account", "t1 by-unit", "t1 by-context", "t2 by-unit", "t2 by-context"}, got)
}

// envelopes is a sink that keeps its events.
type envelopes struct{ events []event.Envelope }

func (s *envelopes) Flush(_ context.Context, _ bun.IDB, events []event.Envelope) error {
	s.events = append(s.events, events...)
	return nil
}
