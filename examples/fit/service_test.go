package fit_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/examples/fit"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/uow"
)

// service is a database with the tables of oncebox and of the wallet.
type service struct {
	*pgtest.DB

	t *testing.T
}

// newService makes a service.
func newService(t *testing.T) *service {
	t.Helper()
	s := &service{DB: pgtest.Migrated(t), t: t}
	_, err := s.Exec(fit.Tables)
	require.NoError(t, err)
	return s
}

// parts are the store and the units of work on a database.
func parts(db *bun.DB) (*outbox.Store, *uow.Manager) {
	registry := event.NewRegistry()
	event.Register[fit.Deposited](registry)
	store := outbox.NewStore(db, &outbox.Config{Registry: registry, Source: "wallet"})
	return store, uow.New(db, &uow.Config{Registry: registry, Source: "wallet"}, store)
}

// testWallet tests a wallet, by its own transactions and within a unit of work: commit, rollback, and the order of each account.
func testWallet(s *service, units *uow.Manager, own func(ctx context.Context, account string, cents int64) error,
	within func(ctx context.Context, u *uow.Unit, account string, cents int64) error,
) {
	in := func(ctx context.Context, account string, cents int64) error {
		return units.Do(ctx, func(ctx context.Context, u *uow.Unit) error { return within(ctx, u, account, cents) })
	}
	ctx := s.t.Context()
	for what, deposit := range map[string]func(context.Context, string, int64) error{"own": own, "unit": in} {
		require.NoError(s.t, deposit(ctx, what, 5), what)
		require.Error(s.t, deposit(ctx, what, -6), "%s: cents may not be negative", what)
		require.EqualValues(s.t, 5, s.cents(what))
		require.Equal(s.t, []int64{1}, s.versions(what))
	}
	// Two writers of each kind, at the same time, on one account.
	var all sync.WaitGroup
	for i := range 4 {
		deposit := own
		if i%2 == 0 {
			deposit = in
		}
		all.Go(func() {
			for range 5 {
				if err := deposit(ctx, "hot", 1); err != nil {
					s.t.Error(err)
				}
			}
		})
	}
	all.Wait()
	var want []int64
	for i := range 20 {
		want = append(want, int64(i+1))
	}
	require.Equal(s.t, want, s.versions("hot"), "in the order of the commits")
	require.EqualValues(s.t, 20, s.cents("hot"))
	require.Equal(s.t, 1, s.count("(SELECT DISTINCT lane FROM outbox WHERE aggregate_id = 'hot') lanes"))
}

// cents is what is committed.
func (s *service) cents(account string) (cents int64) {
	s.t.Helper()
	require.NoError(s.t, s.QueryRowContext(s.t.Context(), fmt.Sprintf("SELECT cents FROM accounts WHERE id = '%s'", account)).Scan(&cents))
	return cents
}

// versions returns the versions of the account's events, in the order in which the events will leave.
func (s *service) versions(account string) (versions []int64) {
	s.t.Helper()
	require.NoError(s.t, s.NewRaw("SELECT aggregate_version FROM outbox WHERE aggregate_id = ? ORDER BY seq", account).Scan(s.t.Context(), &versions))
	return versions
}

func (s *service) count(from string) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.QueryRowContext(s.t.Context(), "SELECT count(*) FROM "+from).Scan(&n))
	return n
}
