package pgtest

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
)

// Adder is the method of outbox.Store that Add needs. Package outbox itself uses this package.
type Adder interface {
	Add(ctx context.Context, tx bun.Tx, topic string, payload any, opts ...event.AddOption) (id string, err error)
}

// Add stores an event in a transaction of its own.
func Add(ctx context.Context, db *bun.DB, store Adder, topic string, payload any, opts ...event.AddOption) (id string, err error) {
	err = db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) (err error) {
		id, err = store.Add(ctx, tx, topic, payload, opts...)
		return err
	})
	return id, err
}
