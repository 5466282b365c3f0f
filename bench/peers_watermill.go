package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// watermillTopic names watermill's tables.
const watermillTopic = "peers"

// watermillPeer is watermill-sql with its default schema of PostgreSQL, which keeps the order of a topic.
type watermillPeer struct {
	pool    *pgxpool.Pool
	adapter sql.DefaultPostgreSQLSchema
}

func openWatermill(ctx context.Context, s *schema, conns int) (peer, error) {
	pool, err := s.pgx(ctx, conns)
	if err != nil {
		return nil, err
	}
	p := &watermillPeer{pool: pool, adapter: sql.DefaultPostgreSQLSchema{
		SubscribeBatchSize: 1000, GeneratePayloadType: func(string) string { return "BYTEA" },
	}}
	subscriber, err := p.subscriber()
	if err == nil {
		err = subscriber.SubscribeInitialize(watermillTopic)
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return p, subscriber.Close()
}

func (p *watermillPeer) subscriber() (*sql.Subscriber, error) {
	return sql.NewSubscriber(sql.BeginnerFromPgx(p.pool), sql.SubscriberConfig{
		SchemaAdapter: p.adapter, OffsetsAdapter: sql.DefaultPostgreSQLOffsetsAdapter{}, PollInterval: 10 * time.Millisecond,
		ResendInterval: 10 * time.Millisecond, InitializeSchema: true,
	}, watermill.NopLogger{})
}

// add records events in a transaction.
func (p *watermillPeer) add(tx pgx.Tx, events ...delivery) error {
	publisher, err := sql.NewPublisher(sql.TxFromPgx(tx), sql.PublisherConfig{SchemaAdapter: p.adapter}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	messages := make([]*message.Message, len(events))
	for i, d := range events {
		messages[i] = message.NewMessage(watermill.NewUUID(), d.Payload)
		messages[i].Metadata.Set("event", d.encode())
	}
	return publisher.Publish(watermillTopic, messages...)
}

func (p *watermillPeer) transact(ctx context.Context, id string, balance, version int64, k int) error {
	return pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		if err := moveByHand(ctx, tx, id, balance, version, k); err != nil {
			return err
		}
		body, err := newMoneyMoved(id).encode()
		if err != nil {
			return err
		}
		return p.add(tx, delivery{Account: id, Version: version, Payload: body})
	})
}

func (p *watermillPeer) record(ctx context.Context, events []delivery) error {
	return pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error { return p.add(tx, events...) })
}

func (p *watermillPeer) relay(ctx context.Context, to *sink) error {
	subscriber, err := p.subscriber()
	if err != nil {
		return err
	}
	messages, err := subscriber.Subscribe(ctx, watermillTopic)
	if err != nil {
		return err
	}
	for m := range messages {
		d, err := decodeDelivery([]byte(m.Metadata.Get("event")))
		if err != nil {
			return err
		}
		d.Payload = m.Payload
		if err := to.deliverAlone(ctx, d); err != nil {
			m.Nack()
			continue
		}
		m.Ack()
	}
	return subscriber.Close()
}

func (p *watermillPeer) left(ctx context.Context) (n int, err error) {
	err = p.pool.QueryRow(ctx, `SELECT count(*) FROM watermill_peers m WHERE NOT EXISTS (SELECT FROM watermill_offsets_peers o
		WHERE (m.transaction_id, m."offset") <= (o.last_processed_transaction_id, o.offset_acked))`).Scan(&n)
	return n, err
}

func (p *watermillPeer) close() { p.pool.Close() }

// moveByHand is the business's part of the transaction.
func moveByHand(ctx context.Context, tx pgx.Tx, id string, balance, version int64, k int) error {
	const update = `UPDATE account SET balance = $1, version = version + $2 WHERE id = $3 AND version = $4 RETURNING version`
	var now int64
	return tx.QueryRow(ctx, update, balance+1, k, id, version).Scan(&now)
}

func (d delivery) encode() string {
	text, _ := json.Marshal(d) //nolint:errchkjson // a text and a number
	return string(text)
}

func decodeDelivery(text []byte) (d delivery, err error) {
	err = json.Unmarshal(text, &d)
	return d, err
}
