package main

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/uow"
)

// onceboxSession is the transaction as a user of oncebox writes it.
type onceboxSession struct {
	db    *bun.DB
	units *uow.Manager
}

func openOncebox(_ context.Context, s *schema, clients int) (session, error) {
	db, err := s.bun(pgx.QueryExecModeExec, clients)
	if err != nil {
		return nil, err
	}
	registry := event.NewRegistry()
	event.Register[moneyMoved](registry)
	store := outbox.NewStore(db, &outbox.Config{Schema: s.name})
	return &onceboxSession{db: db, units: uow.New(db, &uow.Config{Registry: registry, Source: source}, store)}, nil
}

func (o *onceboxSession) transact(ctx context.Context, id string, balance, version int64, k int) error {
	ctx = event.WithMetadata(ctx, metadata())
	return o.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		a := &account{ID: id, Balance: balance + 1, Version: version}
		for range k {
			a.Record(newMoneyMoved(id))
		}
		return u.Save(ctx, a)
	})
}

func (o *onceboxSession) close() { _ = o.db.Close() }
