package main

import (
	"context"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/examples/eventstore/streams"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
)

// balances is a read model: the balance of each account, in a table for queries. The consumer keeps it up to date, and
// rebuild makes it anew from the store, with the same handlers.
type balances struct {
	units   *uow.Manager
	handler *messaging.Router
}

func newBalances(units *uow.Manager, r *event.Registry) *balances {
	b := &balances{units: units, handler: messaging.NewRouter(r)}
	messaging.Handle(b.handler, func(ctx context.Context, _ Opened) error { return b.add(ctx, 0) })
	messaging.Handle(b.handler, func(ctx context.Context, e Deposited) error { return b.add(ctx, e.Cents) })
	messaging.Handle(b.handler, func(ctx context.Context, e Withdrawn) error { return b.add(ctx, -e.Cents) })
	return b
}

// add counts each version once: during a rebuild the consumer may bring events that the rebuild has counted already.
const add = `INSERT INTO balances (account, cents, version) VALUES (?, ?, ?)
	ON CONFLICT (account) DO UPDATE SET cents = balances.cents + excluded.cents, version = excluded.version
	WHERE balances.version < excluded.version`

func (b *balances) add(ctx context.Context, cents int64) error {
	m, _ := messaging.FromContext(ctx)
	_, err := b.units.DB(ctx).NewRaw(add, m.AggregateID, cents, m.AggregateVersion).Exec(ctx)
	return err
}

// rebuild fills the table anew in one unit of work. Readers see the old rows until COMMIT, and consumers wait for it at
// locked rows. It calls progress after each event.
func (b *balances) rebuild(ctx context.Context, store *streams.Store, progress func(done, total int64)) error {
	return b.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		if _, err := u.DB().ExecContext(ctx, `DELETE FROM balances`); err != nil {
			return err
		}
		total, err := store.Count(ctx, u.DB())
		if err != nil {
			return err
		}
		var done int64
		return store.Replay(ctx, u.DB(), func(ctx context.Context, e event.Envelope) error {
			m := messaging.NewMessage(e, 1, nil)
			if err := b.handler.Handle(messaging.NewContext(ctx, m), m); err != nil {
				return err
			}
			done++
			progress(done, max(done, total)) // more may have been committed meanwhile
			return nil
		})
	})
}
