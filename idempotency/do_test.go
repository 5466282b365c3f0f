package idempotency_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/uow"
)

type payCommand struct {
	Cents int
}

type paid struct {
	Number int
	Note   string
}

// cashier handles commands on a real database.
type cashier struct {
	t     *testing.T
	db    *pgtest.DB
	units *uow.Manager
	store *idempotency.Store
	runs  int
	keys  []string // of what it calls outside
}

func newCashier(t *testing.T) *cashier {
	t.Helper()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	_, err := db.ExecContext(t.Context(), "CREATE TABLE payments (number serial, cents int)")
	require.NoError(t, err)
	return &cashier{t: t, db: db, units: uow.New(db.DB, &uow.Config{Source: "test"}), store: newStore(t, db, 0)}
}

func payScope(key string) idempotency.Scope {
	return idempotency.Scope{Tenant: "acme", Principal: "u1", Path: "pay", Key: key}
}

// pay handles a command in a unit. then is what becomes of the handler after its work.
func (c *cashier) pay(key string, cmd any, then error) (got paid, err error) {
	err = c.units.Do(c.t.Context(), func(ctx context.Context, u *uow.Unit) error {
		got, err = idempotency.Do(ctx, c.store, u.DB(), payScope(key), cmd, func(ctx context.Context) (paid, error) {
			c.runs++
			c.keys = append(c.keys, callKey(c.t, ctx, "charge"))
			r := paid{Note: "thanks"}
			if err := u.DB().QueryRowContext(ctx, "INSERT INTO payments (cents) VALUES (1) RETURNING number").Scan(&r.Number); err != nil {
				return r, err
			}
			return r, then
		})
		return err
	})
	return got, err
}

func (c *cashier) count(table string) (n int) {
	require.NoError(c.t, c.db.NewSelect().TableExpr(table).ColumnExpr("count(*)").Scan(c.t.Context(), &n))
	return n
}

func TestDoRunsACommandOnce(t *testing.T) {
	c := newCashier(t)
	first, err := c.pay("k", payCommand{1}, nil)
	require.NoError(t, err)
	require.Equal(t, paid{1, "thanks"}, first)
	for range 2 {
		again, err := c.pay("k", payCommand{1}, errors.New("not run"))
		require.NoError(t, err)
		require.Equal(t, first, again)
	}
	require.Equal(t, 1, c.runs)

	_, err = c.pay("k", payCommand{2}, nil)
	require.ErrorIs(t, err, idempotency.ErrMismatch)
	other, err := c.pay("k2", payCommand{2}, nil)
	require.NoError(t, err)
	require.Equal(t, 2, other.Number)
	require.Equal(t, 2, c.count("payments"))
	require.NotEqual(t, c.keys[0], c.keys[1])
}

// A try that fails leaves nothing behind, and the next one gives other systems the same keys.
func TestDoThatFails(t *testing.T) {
	c := newCashier(t)
	planted := errors.New("planted")
	got, err := c.pay("k", payCommand{1}, planted)
	require.ErrorIs(t, err, planted)
	require.Zero(t, got, "nothing was done")
	require.Zero(t, c.count("payments"))
	require.Zero(t, c.count("idempotency_keys"))

	_, err = c.pay("k", payCommand{1}, nil)
	require.NoError(t, err)
	require.Equal(t, 1, c.count("payments"))
	require.Len(t, c.keys, 2)
	require.Equal(t, c.keys[0], c.keys[1])
}

func TestDoWhileAnotherTransactionHasTheKey(t *testing.T) {
	c := newCashier(t)
	require.NoError(t, transact(t, c.db.DB, func(tx bun.IDB) error {
		_, err := idempotency.Do(t.Context(), c.store, tx, payScope("k"), payCommand{1}, func(context.Context) (int, error) {
			_, err := c.pay("k", payCommand{1}, nil)
			require.ErrorIs(t, err, idempotency.ErrInProgress)
			return 7, nil
		})
		if err != nil {
			return err
		}
		again, err := idempotency.Do(t.Context(), c.store, tx, payScope("k"), payCommand{1}, func(context.Context) (int, error) {
			return 0, errors.New("run again in its own transaction")
		})
		require.Equal(t, 7, again)
		return err
	}))
	require.Zero(t, c.runs)
}

func TestDoRefuses(t *testing.T) {
	c := newCashier(t)
	_, err := c.pay("", payCommand{1}, nil)
	require.ErrorAs(t, err, new(*idempotency.ScopeError))
	_, err = c.pay("k", func() {}, nil)
	require.ErrorContains(t, err, "encode the command")
	_, err = idempotency.Do(t.Context(), c.store, c.db.DB, payScope("k"), payCommand{1}, func(context.Context) (int, error) { return 1, nil })
	require.ErrorContains(t, err, "needs a transaction")
	require.Zero(t, c.runs)

	err = transact(t, c.db.DB, func(tx bun.IDB) error {
		_, err := idempotency.Do(t.Context(), c.store, tx, payScope("k"), payCommand{1}, func(context.Context) (chan int, error) { return nil, nil })
		return err
	})
	require.ErrorContains(t, err, "encode the result")
	require.Zero(t, c.count("idempotency_keys"))

	// A release whose result has another type does not do it again.
	_, err = c.pay("k", payCommand{1}, nil)
	require.NoError(t, err)
	err = transact(t, c.db.DB, func(tx bun.IDB) error {
		_, err := idempotency.Do(t.Context(), c.store, tx, payScope("k"), payCommand{1}, func(context.Context) (int, error) { return 1, nil })
		return err
	})
	require.ErrorContains(t, err, "decode the stored result")
}
