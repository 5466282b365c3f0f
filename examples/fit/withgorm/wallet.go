// Package withgorm is the wallet on GORM.
package withgorm

import (
	"context"
	"database/sql"
	"fmt"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/examples/fit"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/uow"
)

// Account is the model.
type Account struct {
	ID             string `gorm:"primaryKey"`
	Cents, Version int64
}

// Wallet uses the database that the service already had.
type Wallet struct {
	DB     *gorm.DB
	Outbox *outbox.Store
}

// Deposit adds the event in the transaction of GORM, which has a *sql.Tx beneath it.
func (w *Wallet) Deposit(ctx context.Context, account string, cents int64) error {
	err := w.DB.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		version, err := deposit(tx, account, cents)
		if err != nil {
			return err
		}
		beneath, ok := tx.Statement.ConnPool.(*sql.Tx)
		if !ok {
			return fmt.Errorf("beneath the transaction is a %T: leave PrepareStmt off", tx.Statement.ConnPool)
		}
		_, err = w.Outbox.AddSQL(ctx, beneath, fit.Topic, fit.Deposited{Account: account, Cents: cents},
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
func (w *Wallet) DepositIn(ctx context.Context, u *uow.Unit, account string, cents int64) error {
	version, err := deposit(within(ctx, w.DB, u), account, cents)
	if err != nil {
		return err
	}
	return u.Add(fit.Topic, fit.Deposited{Account: account, Cents: cents}, event.WithAggregate("account", account, version))
}

// within returns a GORM session that uses the transaction of the unit.
func within(ctx context.Context, db *gorm.DB, u *uow.Unit) *gorm.DB {
	session := db.Session(&gorm.Session{NewDB: true, Context: ctx, SkipDefaultTransaction: true})
	session.Statement.ConnPool = u.SQL()
	return session
}

func deposit(tx *gorm.DB, account string, cents int64) (version int64, err error) {
	row := Account{ID: account, Cents: cents, Version: 1}
	err = tx.Clauses(clause.OnConflict{
		Columns: []clause.Column{{Name: "id"}},
		DoUpdates: clause.Assignments(map[string]any{
			"cents": gorm.Expr("accounts.cents + excluded.cents"), "version": gorm.Expr("accounts.version + 1"),
		}),
	}, clause.Returning{}).Create(&row).Error
	return row.Version, err
}
