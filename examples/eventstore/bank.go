package main

import (
	"context"

	"github.com/oncebox/oncebox/examples/eventstore/streams"
	"github.com/oncebox/oncebox/uow"
)

// bank changes accounts.
type bank struct {
	units *uow.Manager
	store *streams.Store
}

// change loads an account, calls fn to change it, and commits its events. If another process was faster, everything
// runs again, and fn gets the account as the other process has left it.
func (b *bank) change(ctx context.Context, id string, fn func(ctx context.Context, a *Account) error) error {
	return b.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		a := &Account{ID: id}
		var err error
		if a.Version, err = b.store.Load(ctx, u.DB(), a, a.apply); err != nil {
			return err
		}
		if err := fn(ctx, a); err != nil {
			return err
		}
		u.Track(a) // its events reach the store and the outbox in this commit
		return nil
	})
}
