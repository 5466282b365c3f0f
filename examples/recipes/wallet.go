package recipes

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/uow"
)

// Wallet is an aggregate.
type Wallet struct {
	event.Recorder `bun:"-"`

	bun.BaseModel `bun:"table:wallets"`
	ID            string `bun:"id,pk"`
	Cents         int64  `bun:"cents"`
	Version       int64  `bun:"version"`
}

// Deposited is its event.
type Deposited struct {
	Wallet string
	Cents  int64
}

// EventType names the event on the wire.
func (Deposited) EventType() string { return "wallet.deposited" }

// AggregateType is part of the wallet's identity.
func (*Wallet) AggregateType() string { return "wallet" }

// AggregateID is part of the wallet's identity.
func (w *Wallet) AggregateID() string { return w.ID }

// AggregateVersion counts the events of the wallet.
func (w *Wallet) AggregateVersion() int64 { return w.Version }

// Deposit changes the wallet.
func (w *Wallet) Deposit(cents int64) {
	w.Cents += cents
	w.Record(Deposited{w.ID, cents})
}

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

// DepositInto changes a wallet that many requests change at the same time: they take turns.
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
