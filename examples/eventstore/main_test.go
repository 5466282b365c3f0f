package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/localpg"
	"github.com/oncebox/oncebox/oncetest"
)

func TestMain(m *testing.M) { oncetest.Main(m) }

func TestStory(t *testing.T) {
	db, err := localpg.Start(t.Context(), localpg.Output(io.Discard))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	var out strings.Builder
	require.NoError(t, run(t.Context(), db.URL, &out))
	require.Contains(t, out.String(), "2508 of 2508 events  100 %")
	require.Contains(t, out.String(), "Ann has 77.50, Bob 40.00, and all of them together 119193.50.")
}

const customers, changes = 8, 12

// The read model that the consumer made, event by event, equals the one that is computed from the store.
func TestRebuildEqualsLive(t *testing.T) {
	s := newTested(t)
	s.write(t)
	s.Drain()
	live := s.rows(t)
	require.Equal(t, all(), live)

	_, err := s.DB.ExecContext(t.Context(), `UPDATE balances SET cents = 0, version = 1 WHERE account < 'a-4'; DELETE FROM balances WHERE account > 'a-5'`)
	require.NoError(t, err)
	var progress []int64
	require.NoError(t, s.service().balances.rebuild(t.Context(), s.service().store, func(done, total int64) {
		require.EqualValues(t, customers*changes*2, total)
		progress = append(progress, done)
	}))
	require.Equal(t, live, s.rows(t))
	require.Len(t, progress, customers*changes*2)
	require.IsIncreasing(t, progress)
}

// The same holds when it is rebuilt again and again while accounts change and the consumer brings events.
func TestRebuildWhileAccountsChange(t *testing.T) {
	s := newTested(t)
	end := s.live(t)
	written := make(chan struct{})
	go func() {
		defer close(written)
		s.write(t)
	}()
	rebuilds := 0
	for writing := true; writing; rebuilds++ {
		require.NoError(t, s.service().balances.rebuild(t.Context(), s.service().store, func(int64, int64) {}))
		select {
		case <-written:
			writing = false
		default:
		}
	}
	t.Logf("%d rebuilds", rebuilds)
	end()
	for len(s.DrainFailing()) > 0 { // the consumer may have lost too often against a rebuild
		s.Advance(time.Hour)
	}
	require.Equal(t, all(), s.rows(t))
}

// The balances are right wherever the process dies while it hands an account's events on.
func TestBalancesSurviveACrash(t *testing.T) {
	for _, point := range []oncetest.Point{
		oncetest.BeforePublish, oncetest.AfterPublish, oncetest.BeforeCommit, oncetest.AfterCommit, oncetest.BeforeAck,
	} {
		t.Run(string(point), func(t *testing.T) {
			t.Parallel()
			s := newTested(t)
			change := func(fn func(*Account) error) {
				require.NoError(t, s.service().bank.change(t.Context(), "a", func(_ context.Context, a *Account) error { return fn(a) }))
			}
			change(func(a *Account) error { return a.Open("Ann") })
			s.Drain()
			change(func(a *Account) error { return errors.Join(a.Deposit(500), a.Withdraw(1)) })
			s.CrashAt(point)
			s.Drain()
			require.Equal(t, map[string]string{"a": "499 cents, version 3"}, s.rows(t))
		})
	}
}

func TestAccountRefuses(t *testing.T) {
	a := &Account{ID: "a"}
	require.ErrorIs(t, a.Deposit(1), errNotOpen)
	require.ErrorIs(t, a.Withdraw(1), errOverdrawn)
	require.NoError(t, a.Open("Ann"))
	require.ErrorIs(t, a.Open("Ann"), errOpen)
	require.Len(t, a.RecordedEvents(), 1)
	_, err := eurosToCents([]byte("{"))
	require.Error(t, err)
}

// tested is the service in a test.
type tested struct {
	*oncetest.Kit
	service func() *service
}

func newTested(t *testing.T) *tested {
	t.Helper()
	kit, present := oncetest.NewService(t, func(setup oncetest.Setup) (*service, *oncebox.App, error) {
		s, err := newService(setup.DB, setup.Broker, setup.Config)
		if err != nil {
			return nil, nil, err
		}
		return s, s.app, s.tables(t.Context())
	})
	return &tested{kit, present}
}

// live lets the service relay and consume, as in production, until the returned function is called.
func (s *tested) live(t *testing.T) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.service().app.Run(ctx) }()
	end = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	t.Cleanup(end)
	return end
}

// write changes each account a number of times, two events each time.
func (s *tested) write(t *testing.T) {
	t.Helper()
	var group errgroup.Group
	for n := range customers {
		group.Go(func() error {
			for i := range changes {
				err := s.service().bank.change(t.Context(), fmt.Sprintf("a-%d", n), func(_ context.Context, a *Account) error {
					if i == 0 {
						return errors.Join(a.Open("somebody"), a.Deposit(1_000))
					}
					return errors.Join(a.Deposit(int64(100*n+i)), a.Withdraw(1))
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

// all is what write leads to.
func all() map[string]string {
	rows := map[string]string{}
	for n := range int64(customers) {
		cents := int64(1_000)
		for i := range int64(changes) {
			if i > 0 {
				cents += 100*n + i - 1
			}
		}
		rows[fmt.Sprintf("a-%d", n)] = fmt.Sprintf("%d cents, version %d", cents, 2*changes)
	}
	return rows
}

// rows is the read model.
func (s *tested) rows(t *testing.T) map[string]string {
	t.Helper()
	var found []struct{ Account, Text string }
	require.NoError(t, s.DB.NewRaw(`SELECT account, format('%s cents, version %s', cents, version) AS text FROM balances`).Scan(t.Context(), &found))
	rows := map[string]string{}
	for _, r := range found {
		rows[r.Account] = r.Text
	}
	return rows
}
