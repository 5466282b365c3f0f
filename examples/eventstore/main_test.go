package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestStory(t *testing.T) {
	db := pgtest.Open(t) // a schema that is dropped at the end
	var out strings.Builder
	require.NoError(t, run(t.Context(), pgtest.URL(t), db.Schema, &out))
	require.Contains(t, out.String(), "2508 of 2508 events  100 %")
	require.Contains(t, out.String(), "Ann has 77.50, Bob 40.00, and all of them together 119193.50.")
}

const customers, changes = 8, 12

// What the consumer made, event by event, and what is made of the store are the same.
func TestRebuildEqualsLive(t *testing.T) {
	s := newRunning(t)
	s.write(t)
	s.drained(t)
	live := s.rows(t)
	require.Equal(t, all(), live)

	_, err := s.db.ExecContext(t.Context(), `UPDATE balances SET cents = 0, version = 1 WHERE account < 'a-4'; DELETE FROM balances WHERE account > 'a-5'`)
	require.NoError(t, err)
	var progress []int64
	require.NoError(t, s.balances.rebuild(t.Context(), s.store, func(done, total int64) {
		require.EqualValues(t, customers*changes*2, total)
		progress = append(progress, done)
	}))
	require.Equal(t, live, s.rows(t))
	require.Len(t, progress, customers*changes*2)
	require.IsIncreasing(t, progress)
}

// So they are when it is rebuilt again and again while accounts change and the consumer brings events.
func TestRebuildWhileAccountsChange(t *testing.T) {
	s := newRunning(t)
	written := make(chan struct{})
	go func() {
		defer close(written)
		s.write(t)
	}()
	for rebuilds := 1; ; rebuilds++ {
		select {
		case <-written:
			t.Logf("%d rebuilds", rebuilds)
			s.drained(t)
			require.Equal(t, all(), s.rows(t))
			return
		default:
			require.NoError(t, s.balances.rebuild(t.Context(), s.store, func(int64, int64) {}))
		}
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

// newRunning returns a service that relays and consumes until the test ends.
func newRunning(t *testing.T) *service {
	t.Helper()
	db := pgtest.Open(t)
	cfg := config.Config{Schema: db.Schema, Logger: slog.New(slog.DiscardHandler)}
	cfg.UoW.Source = "bank"
	s, err := newService(db.DB, cfg)
	require.NoError(t, err)
	require.NoError(t, s.tables(t.Context()))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.app.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return s
}

// write changes each account a number of times, two events each time.
func (s *service) write(t *testing.T) {
	t.Helper()
	var group errgroup.Group
	for n := range customers {
		group.Go(func() error {
			for i := range changes {
				err := s.bank.change(t.Context(), fmt.Sprintf("a-%d", n), func(_ context.Context, a *Account) error {
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

// rows is the projection.
func (s *service) rows(t *testing.T) map[string]string {
	t.Helper()
	var found []struct{ Account, Text string }
	require.NoError(t, s.db.NewRaw(`SELECT account, format('%s cents, version %s', cents, version) AS text FROM balances`).Scan(t.Context(), &found))
	rows := map[string]string{}
	for _, r := range found {
		rows[r.Account] = r.Text
	}
	return rows
}

// drained waits until the consumer has handled every event.
func (s *service) drained(t *testing.T) {
	t.Helper()
	await.True(t, func() bool {
		var left int
		err := s.db.NewRaw(`SELECT (SELECT count(*) FROM stream_events) - (SELECT count(*) FROM inbox)`).Scan(t.Context(), &left)
		return err == nil && left == 0
	}, "all events to be handled")
}
