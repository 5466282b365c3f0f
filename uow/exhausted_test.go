package uow_test

import (
	"context"
	"database/sql"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/uow"
)

// A pool of 2 whose units all want a second connection is stuck until a deadline passes. What then fails names the cause.
func TestPoolThatUnitsHaveExhaustedIsNamed(t *testing.T) {
	s := newService(t, nil)
	std, err := sql.Open("pgx", s.DSN)
	require.NoError(t, err)
	std.SetMaxOpenConns(2)
	units := s.manager(nil, closed(t, std))
	taken, release := make(chan struct{}, 2), make(chan struct{})
	var all sync.WaitGroup
	defer all.Wait()
	defer close(release)
	for range 2 {
		all.Go(func() {
			if err := units.Do(t.Context(), func(context.Context, *uow.Unit) error {
				taken <- struct{}{}
				<-release
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	for range 2 {
		await.Receive(t, taken, "a unit that has a connection")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond) // the pool is stuck: it passes, however long it is
	defer cancel()
	err = units.Do(ctx, func(context.Context, *uow.Unit) error { return nil })
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "all 2 connections of the pool are in use")
	require.ErrorContains(t, err, "SetMaxOpenConns")
}

// Without a deadline a unit would wait for ever without a word.
func TestUnitThatWaitsForAConnectionIsTold(t *testing.T) {
	s := newService(t, nil)
	std, err := sql.Open("pgx", s.DSN)
	require.NoError(t, err)
	std.SetMaxOpenConns(1)
	units := s.manager(nil, closed(t, std))
	uow.TellOfWaitsAfter(units, time.Millisecond)
	ctx, giveUp := context.WithCancel(t.Context())
	waited := make(chan error, 1)
	require.NoError(t, units.Do(t.Context(), func(context.Context, *uow.Unit) error {
		go func() { waited <- units.Do(ctx, func(context.Context, *uow.Unit) error { return nil }) }()
		await.True(t, func() bool {
			return strings.Contains(s.logs.all(), "waits for a connection to the database, and all of the pool are in use")
		}, "it is logged")
		giveUp()
		require.ErrorIs(t, await.Receive(t, waited, "the unit gives up"), context.Canceled)
		return nil
	}))
	require.Contains(t, s.logs.all(), "connections=1 waited=1ms")
	require.False(t, uow.WaitIsDue(units, time.Now().Add(30*time.Second)), "others wait as well, and it was told")
	require.True(t, uow.WaitIsDue(units, time.Now().Add(2*time.Minute)))
}
