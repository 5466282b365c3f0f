// Package withsqlc is the wallet on pgx, with queries that sqlc has generated.
package withsqlc

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/examples/fit"
	"github.com/oncebox/oncebox/examples/fit/withsqlc/queries"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/uow"
)

// Wallet uses the pool that the service already had.
type Wallet struct {
	Pool   *pgxpool.Pool
	Outbox *outbox.Store
}

// Deposit adds the event in the service's own transaction.
func (w *Wallet) Deposit(ctx context.Context, account string, cents int64) error {
	err := pgx.BeginFunc(ctx, w.Pool, func(tx pgx.Tx) error {
		version, err := queries.New(tx).Deposit(ctx, queries.DepositParams{ID: account, Cents: cents})
		if err != nil {
			return err
		}
		_, err = w.Outbox.AddPgx(ctx, tx, fit.Topic, fit.Deposited{Account: account, Cents: cents},
			event.WithAggregate("account", account, version))
		return err
	})
	if err != nil {
		return err
	}
	w.Outbox.Wake() // after COMMIT, because relays cannot see the event before
	return nil
}

// DepositIn works in a unit of work, which commits and wakes the relay.
func DepositIn(ctx context.Context, u *uow.Unit, account string, cents int64) error {
	version, err := queries.New(u.Pgx()).Deposit(ctx, queries.DepositParams{ID: account, Cents: cents})
	if err != nil {
		return err
	}
	return u.Add(fit.Topic, fit.Deposited{Account: account, Cents: cents}, event.WithAggregate("account", account, version))
}
