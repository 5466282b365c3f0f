package uow_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/uow"
)

// deposit changes an account that it has loaded with a lock.
func deposit(ctx context.Context, units *uow.Manager, id string) error {
	return units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		a := &account{ID: id}
		if err := u.DB().NewSelect().Model(a).WherePK().For("UPDATE").Scan(ctx); err != nil {
			return err
		}
		a.Record(changed{"deposit"})
		return u.Save(ctx, a)
	}, uow.WithoutRetry())
}

// None of many deposits at the same time is in conflict with another one, and none is tried again.
func TestHotAggregateThatIsLocked(t *testing.T) {
	t.Parallel()
	s := newSaver(t, nil, func(s *service) *bun.DB { return pipelined(t, s.DSN) })
	s.pool.SetMaxOpenConns(20)
	require.NoError(t, s.save(t.Context(), newAccount("a", "opened")))
	const deposits = 40
	errs := make([]error, deposits)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { errs[i] = deposit(t.Context(), s.units, "a") })
	}
	all.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.Equal(t, []string{fmt.Sprintf("a v%d", deposits+1)}, s.accounts(t))
	require.Len(t, s.sunk(t), deposits+1)
}

func TestSecondCreation(t *testing.T) {
	eachPool(t, func(t *testing.T, s *saver) {
		require.NoError(t, s.save(t.Context(), newAccount("a", "opened", "renamed")))
		err := s.save(t.Context(), newAccount("a", "opened"))
		require.ErrorIs(t, err, uow.ErrExists)
		require.ErrorIs(t, err, uow.ErrConflict)
		require.ErrorContains(t, err, "account a exists already, with version 2")
		require.NotErrorIs(t, &uow.ConflictError{Expected: 1, Found: 2}, uow.ErrExists)
		require.ErrorContains(t, &uow.ConflictError{Type: "account", ID: "b", Expected: 1}, "account b: expected version 1, and there is no such row")

		// The function is run again once: it may have looked before the other one was there, and load it now.
		runs := 0
		err = s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
			runs++
			return u.Save(ctx, newAccount("a", "opened"))
		})
		require.ErrorIs(t, err, uow.ErrExists)
		require.Equal(t, 2, runs)
	})
}

// An aggregate that many change at the same time is loaded with a lock: they take turns, and each sees what the one before has saved.
func ExampleUnit_Save_hotAggregate() {
	db, done := exampleDB("CREATE TABLE accounts (id text PRIMARY KEY, version bigint NOT NULL)")
	defer done()
	registry := event.NewRegistry()
	event.Register[changed](registry)
	units := uow.New(db, &uow.Config{Registry: registry, Source: "bank"}, printer{})
	ctx := context.Background()

	if err := units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		a := &account{ID: "a-1"}
		a.Record(changed{"opened"})
		return u.Save(ctx, a)
	}); err != nil {
		panic(err)
	}
	err := units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		a := &account{ID: "a-1"}
		if err := u.DB().NewSelect().Model(a).WherePK().For("UPDATE").Scan(ctx); err != nil {
			return err
		}
		a.Record(changed{"deposit"})
		return u.Save(ctx, a)
	})
	fmt.Println(err)
	// Output:
	// event account.changed account a-1 1 {"Text":"opened"}
	// event account.changed account a-1 2 {"Text":"deposit"}
	// <nil>
}
