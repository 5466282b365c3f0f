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

// change loads an account, has fn change it, and commits what has happened. When another one was faster, all of it is
// done again: fn sees the account as the other one has left it.
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
