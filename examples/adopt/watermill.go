package main

import (
	"context"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// forwarded is the topic that watermill's forwarder reads. Its table is watermill_events.
const forwarded = "events"

// watermillCode uses watermill-sql with the forwarder, as the documentation of watermill does for an outbox: the message is put into an envelope.
type watermillCode struct{ pool *pgxpool.Pool }

func openWatermill(_ context.Context, s *site) (oldCode, error) {
	// The subscriber of the forwarder makes the tables. It is closed at once, as in step 2 of the guide.
	subscriber, err := sql.NewSubscriber(sql.BeginnerFromPgx(s.pool), sql.SubscriberConfig{
		SchemaAdapter: sql.DefaultPostgreSQLSchema{}, OffsetsAdapter: sql.DefaultPostgreSQLOffsetsAdapter{}, InitializeSchema: true,
	}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	if err := subscriber.SubscribeInitialize(forwarded); err != nil {
		return nil, err
	}
	return watermillCode{s.pool}, subscriber.Close()
}

func (o watermillCode) change(ctx context.Context, order string) error {
	return pgx.BeginFunc(ctx, o.pool, func(tx pgx.Tx) error {
		version, err := raisePgx(ctx, tx, order)
		if err != nil {
			return err
		}
		toTable, err := sql.NewPublisher(sql.TxFromPgx(tx), sql.PublisherConfig{SchemaAdapter: sql.DefaultPostgreSQLSchema{}}, watermill.NopLogger{})
		if err != nil {
			return err
		}
		m := message.NewMessage(watermill.NewUUID(), body(order, version))
		m.Metadata.Set("order_id", order)
		m.Metadata.Set("name", "order.changed")
		return forwarder.NewPublisher(toTable, forwarder.PublisherConfig{ForwarderTopic: forwarded}).Publish("order", m)
	})
}
