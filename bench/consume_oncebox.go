package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
)

const (
	singleSettings    = "inbox.Wrap, messaging.Consumer, Concurrency 8; the handler is the floor's statement, prepared, in the unit's transaction"
	rawBunSettings    = "the same, but the handler is a raw statement of bun, which the server parses and plans each time"
	modelSettings     = "the same, but messaging.Router decodes the event and the handler is an UPDATE of a bun model"
	batchSettings     = "inbox.WrapBatch, messaging.Consumer, BatchSize 100, Concurrency 2; the handler is the floor's bulk UPDATE, prepared"
	batchEachSettings = "inbox.Wrap, messaging.Consumer, BatchSize 100, Concurrency 2; the handler of single is called for each message"

	ownInbox = "inbox"
)

// makeHandler makes the handler of a variant.
type makeHandler func(c *consumption, box *inbox.Inbox, units *uow.Manager) messaging.Handler

// prepared runs a statement in the unit's transaction through pgx, without bun in between.
func prepared(ctx context.Context, db bun.IDB, text string, args ...any) error {
	tx, ok := db.(bun.Tx)
	if !ok {
		return fmt.Errorf("the handler runs outside of a unit, with a %T", db)
	}
	_, err := tx.Tx.ExecContext(ctx, text, append([]any{pgx.QueryExecModeCacheStatement}, args...)...)
	return err
}

// updateByHand is the handler of the floor.
func updateByHand(c *consumption, box *inbox.Inbox, units *uow.Manager) messaging.Handler {
	return box.Wrap(source, messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		c.ledger.handle(m.AggregateID, m.AggregateVersion)
		return prepared(ctx, units.DB(ctx), handEffect, m.AggregateID)
	}))
}

func updateRaw(c *consumption, box *inbox.Inbox, units *uow.Manager) messaging.Handler {
	return box.Wrap(source, messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		c.ledger.handle(m.AggregateID, m.AggregateVersion)
		_, err := units.DB(ctx).NewRaw(`UPDATE account SET balance = balance + 1 WHERE id = ?`, m.AggregateID).Exec(ctx)
		return err
	}))
}

// updateModel is the handler as many services write it.
func updateModel(c *consumption, box *inbox.Inbox, units *uow.Manager) messaging.Handler {
	registry := event.NewRegistry()
	event.Register[moneyMoved](registry)
	router := messaging.NewRouter(registry)
	messaging.Handle(router, func(ctx context.Context, e moneyMoved) error {
		m, _ := messaging.FromContext(ctx)
		c.ledger.handle(m.AggregateID, m.AggregateVersion)
		_, err := units.DB(ctx).NewUpdate().Model((*account)(nil)).
			Set("balance = balance + ?", e.Amount).Where("id = ?", m.AggregateID).Exec(ctx)
		return err
	})
	return box.Wrap(source, router)
}

// updateMany is the bulk writer of the floor.
func updateMany(c *consumption, box *inbox.Inbox, units *uow.Manager) messaging.Handler {
	return box.WrapBatch(source, func(ctx context.Context, msgs []*messaging.Message) error {
		sums := make(map[string]int64, len(msgs))
		for _, m := range msgs {
			sums[m.AggregateID]++
			c.ledger.handle(m.AggregateID, m.AggregateVersion)
		}
		accounts, amounts := columns(sums)
		return prepared(ctx, units.DB(ctx), handEffects, accounts, amounts)
	})
}

// consumeOne consumes messages one by one, consumeMany in batches.
func consumeOne(handler makeHandler) func(context.Context, *consumption) error {
	return func(ctx context.Context, c *consumption) error {
		return c.consume(ctx, &messaging.ConsumerConfig{Concurrency: consumeWorkers}, handler)
	}
}

func consumeMany(handler makeHandler) func(context.Context, *consumption) error {
	return func(ctx context.Context, c *consumption) error {
		return c.consume(ctx, &messaging.ConsumerConfig{Concurrency: consumeLanes, BatchSize: consumeBatch}, handler)
	}
}

// consume runs a consumer until everything is settled.
func (c *consumption) consume(ctx context.Context, cfg *messaging.ConsumerConfig, handler makeHandler) error {
	db, err := c.schema.bun(pgx.QueryExecModeExec, cfg.Concurrency+2)
	if err != nil {
		return err
	}
	defer db.Close()
	units := uow.New(db, nil)
	box := inbox.New(units, &inbox.Config{Schema: c.schema.name})
	if err := box.EnsurePartitions(ctx); err != nil {
		return err
	}
	r, err := c.broker.Subscribe(ctx, c.subscription())
	if err != nil {
		return err
	}
	cfg.Name = source
	return messaging.NewConsumer(&countedReceiver{r, c.ledger}, handler(c, box, units), cfg).Run(ctx)
}

// countedReceiver notes what comes and goes.
type countedReceiver struct {
	messaging.Receiver

	ledger *ledger
}

// Receive passes on.
func (r *countedReceiver) Receive(ctx context.Context) (*messaging.Message, error) {
	m, err := r.Receiver.Receive(ctx)
	if err == nil {
		r.ledger.receive()
	}
	return m, err
}

// Ack passes on.
func (r *countedReceiver) Ack(ctx context.Context, m *messaging.Message) error {
	err := r.Receiver.Ack(ctx, m)
	if err == nil {
		r.ledger.settle(1)
	}
	return err
}
