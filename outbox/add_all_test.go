package outbox_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/outbox"
)

// wayOfAll adds all drafts within a transaction of a caller's own, and commits it if more, which may be nil, returns nil.
type wayOfAll func(drafts []outbox.Draft, more func() error) ([]string, error)

// waysToAddAll returns every way, by its name.
func (f *fixture) waysToAddAll() map[string]wayOfAll {
	ctx, pool := f.T.Context(), f.pgxPool(pgx.QueryExecModeCacheStatement)
	then := func(more func() error) error {
		if more == nil {
			return nil
		}
		return more()
	}
	return map[string]wayOfAll{
		"bun": func(drafts []outbox.Draft, more func() error) (ids []string, err error) {
			err = f.DB.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) (err error) {
				if ids, err = f.AddAll(ctx, tx, drafts...); err != nil {
					return err
				}
				return then(more)
			})
			return ids, err
		},
		"database/sql": func(drafts []outbox.Draft, more func() error) ([]string, error) {
			tx, err := f.DB.DB.DB.BeginTx(ctx, nil)
			require.NoError(f.T, err)
			defer func() { _ = tx.Rollback() }()
			ids, err := f.AddAllSQL(ctx, tx, drafts...)
			if err != nil {
				return nil, err
			}
			if err := then(more); err != nil {
				return nil, err
			}
			return ids, tx.Commit()
		},
		"pgx": func(drafts []outbox.Draft, more func() error) (ids []string, err error) {
			err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
				if ids, err = f.AddAllPgx(ctx, tx, drafts...); err != nil {
					return err
				}
				return then(more)
			})
			return ids, err
		},
	}
}

func draft(typ, key string, more ...event.AddOption) outbox.Draft {
	return outbox.Draft{Topic: "order", Payload: []byte(typ), Options: append(more, event.WithType(typ), event.WithOrderingKey(key))}
}

func TestAddAllStoresInTheOrderOfTheDrafts(t *testing.T) {
	f := newFixture(t, nil)
	for name, add := range f.waysToAddAll() {
		t.Run(name, func(t *testing.T) {
			ids, err := add(nil, nil)
			require.NoError(t, err)
			require.Empty(t, ids)

			var drafts []outbox.Draft
			for n := range 20 {
				drafts = append(drafts, draft(fmt.Sprintf("%s %d", name, n), fmt.Sprint("k-", n%3)))
			}
			drafts[7].Options = append(drafts[7].Options, event.WithDedupKey(name))
			_, err = add(drafts, func() error { return errUndone })
			require.ErrorIs(t, err, errUndone)
			ids, err = add(drafts, nil)
			require.NoError(t, err)
			var stored []string
			require.NoError(t, f.DB.NewRaw("SELECT id FROM outbox WHERE event_type LIKE ? ORDER BY seq", name+" %").Scan(t.Context(), &stored))
			require.Equal(t, stored, ids, "once, and in order")

			again, err := add([]outbox.Draft{drafts[7], draft(name+" new", "k-0")}, nil)
			require.NoError(t, err)
			require.Equal(t, ids[7], again[0], "it repeats an earlier one")
			require.NotContains(t, ids, again[1])
		})
	}
}

func TestAddAllSendsNothingIfADraftCannotBeCarried(t *testing.T) {
	f := newFixture(t, nil)
	for name, add := range f.waysToAddAll() {
		_, err := add([]outbox.Draft{draft("fine", "k"), {Topic: "a/b"}}, nil)
		require.ErrorIs(t, err, event.ErrInvalid, name)
		require.ErrorContains(t, err, "draft 1", name)
	}
	require.Zero(t, f.Count("outbox"))
	for what, add := range map[string]func() ([]string, error){
		"bun": func() ([]string, error) { return f.AddAll(t.Context(), bun.Tx{}, draft("t", "k")) },
		"sql": func() ([]string, error) { return f.AddAllSQL(t.Context(), nil, draft("t", "k")) },
		"pgx": func() ([]string, error) { return f.AddAllPgx(t.Context(), nil, draft("t", "k")) },
	} {
		_, err := add()
		require.ErrorContains(t, err, "the transaction is nil", what)
	}
}

// Two transactions add to the same keys, the one in the reverse order of the other. With a call of Add for each, PostgreSQL would fail one of
// them with 40P01 in nearly each round.
func TestTransactionsThatAddAllDoNotDeadlock(t *testing.T) {
	f := newFixture(t, nil)
	var there []outbox.Draft
	for n := range 40 {
		there = append(there, draft("t", fmt.Sprint("k-", n), event.WithTenantID(fmt.Sprint("tenant-", n%4))))
	}
	back := slices.Clone(there)
	slices.Reverse(back)
	for name, add := range f.waysToAddAll() {
		var group sync.WaitGroup
		errs := make([]error, 2)
		for i, drafts := range [][]outbox.Draft{there, back} {
			group.Go(func() {
				for range 25 {
					if _, err := add(drafts, nil); err != nil {
						errs[i] = err
						return
					}
				}
			})
		}
		group.Wait()
		require.NoError(t, errs[0], name)
		require.NoError(t, errs[1], name)
	}
}
