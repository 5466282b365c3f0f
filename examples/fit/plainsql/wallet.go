// Package plainsql is the wallet on database/sql.
package plainsql

import (
	"context"
	"database/sql"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/examples/fit"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/uow"
)

const deposit = `INSERT INTO accounts (id, cents, version) VALUES ($1, $2, 1)
	ON CONFLICT (id) DO UPDATE SET cents = accounts.cents + excluded.cents, version = accounts.version + 1 RETURNING version`

// Wallet uses the pool that the service already had.
type Wallet struct {
	DB     *sql.DB
	Outbox *outbox.Store
}

// Deposit adds the event in the service's own transaction.
func (w *Wallet) Deposit(ctx context.Context, account string, cents int64) error {
	tx, err := w.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	var version int64
	if err := tx.QueryRowContext(ctx, deposit, account, cents).Scan(&version); err != nil {
		return err
	}
	if _, err := w.Outbox.AddSQL(ctx, tx, fit.Topic, fit.Deposited{Account: account, Cents: cents},
		event.WithAggregate("account", account, version)); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	w.Outbox.Wake() // after COMMIT, because relays cannot see the event before
	return nil
}

// DepositIn works in a unit of work: that of an HTTP handler, of a consumer or of a uow.Manager. The unit
// commits and wakes the relay.
func DepositIn(ctx context.Context, u *uow.Unit, account string, cents int64) error {
	var version int64
	if err := u.SQL().QueryRowContext(ctx, deposit, account, cents).Scan(&version); err != nil {
		return err
	}
	return u.Add(fit.Topic, fit.Deposited{Account: account, Cents: cents}, event.WithAggregate("account", account, version))
}
