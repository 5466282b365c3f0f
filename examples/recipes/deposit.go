package recipes

import (
	"context"
	"database/sql"
	"errors"

	"github.com/oncebox/oncebox/uow"
)

// Deposit loads a wallet, changes it and saves it.
func Deposit(ctx context.Context, units *uow.Manager, id string, cents int64) error {
	return units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		w := &Wallet{ID: id}
		if err := u.DB().NewSelect().Model(w).WherePK().Scan(ctx); err != nil {
			return err
		}
		w.Deposit(cents)
		return u.Save(ctx, w) // inserts or updates the row, and adds the events
	})
}

// DepositInto changes a wallet that many requests change at the same time: each waits for the lock of the row.
func DepositInto(ctx context.Context, units *uow.Manager, id string, cents int64) error {
	return units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		w := &Wallet{}
		if err := u.DB().NewSelect().Model(w).Where("id = ?", id).For("UPDATE").Scan(ctx); err != nil {
			return err
		}
		w.Deposit(cents)
		return u.Save(ctx, w)
	})
}

// DepositFirst makes the wallet if it does not exist. If two processes do so at the same time, one of them
// runs again and loads it.
func DepositFirst(ctx context.Context, units *uow.Manager, id string, cents int64) error {
	return units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		w := &Wallet{ID: id} // version 0: Save inserts it
		err := u.DB().NewSelect().Model(w).WherePK().Scan(ctx)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		w.Deposit(cents)
		return u.Save(ctx, w)
	})
}
