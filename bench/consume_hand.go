package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"strconv"

	client "github.com/apache/pulsar-client-go/pulsar"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"
)

const (
	// consumeWorkers is the number of workers that take messages one by one.
	consumeWorkers = 8
	// consumeBatch is the most messages of a transaction.
	consumeBatch = 100
	// consumeLanes is the number of such transactions at once.
	consumeLanes = 2
	// handQueue is how many messages of a partition the client holds ready.
	handQueue = 1000

	rawSettings        = "Receive and Ack in a loop, receiver queue 1,000; a copy counts as handled"
	handSingleSettings = "pgx, prepared: BEGIN, INSERT ON CONFLICT, UPDATE, COMMIT, Ack; 8 workers, a key always with the same, receiver queue 1,000"
	handEachSettings   = "batch-hand, but an UPDATE for each message, one after the other"
	handBatchSettings  = "pgx, prepared: BEGIN, INSERT of 100 ON CONFLICT RETURNING, bulk UPDATE, COMMIT, 100 Acks; 2 lanes, else the same"

	handInbox       = "hand_inbox"
	createHandInbox = `
CREATE TABLE hand_inbox (message_id uuid NOT NULL, consumer text NOT NULL, processed_at timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (message_id, consumer))`

	handEnter     = `INSERT INTO hand_inbox (message_id, consumer) VALUES ($1, $2) ON CONFLICT DO NOTHING`
	handEffect    = `UPDATE account SET balance = balance + 1 WHERE id = $1`
	handEnterMany = `INSERT INTO hand_inbox (message_id, consumer) SELECT unnest($1::uuid[]), $2 ON CONFLICT DO NOTHING RETURNING message_id`
	handEffects   = `UPDATE account a SET balance = a.balance + m.n FROM unnest($1::text[], $2::bigint[]) m(id, n) WHERE a.id = m.id`
)

// handMessage is what a consumer by hand reads from a message.
type handMessage struct {
	from    client.Message
	id      [16]byte // not a uuid.UUID, which pgx would encode as text
	account string
	version int64
}

func readMessage(m client.Message) (handMessage, error) {
	p := m.Properties()
	id, err := uuid.Parse(p["ce_id"])
	version, _ := strconv.ParseInt(p["ce_aggregateversion"], 10, 64) // 0 for a message without a version, which the tally rejects
	return handMessage{from: m, id: id, account: p["ce_subject"], version: version}, err
}

// handConsumer is a consumer of Pulsar's client that records received and acknowledged messages.
type handConsumer struct {
	client.Consumer

	ledger *ledger
}

func (c *consumption) subscribe() (*handConsumer, error) {
	s := c.subscription()
	consumer, err := c.namespace.client.Subscribe(client.ConsumerOptions{
		Topic: c.namespace.topic(s.Topic), SubscriptionName: s.Name, Type: client.Failover, ReceiverQueueSize: handQueue,
	})
	if err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	return &handConsumer{consumer, c.ledger}, nil
}

// take hands over messages until ctx is done.
func (c *handConsumer) take(ctx context.Context, fn func(m handMessage) error) error {
	for {
		received, err := c.Receive(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // everything is settled
		case err != nil:
			return fmt.Errorf("receive: %w", err)
		}
		c.ledger.receive()
		m, err := readMessage(received)
		if err != nil {
			return fmt.Errorf("read a message: %w", err)
		}
		if err := fn(m); err != nil {
			return err
		}
	}
}

func (c *handConsumer) settle(ms ...handMessage) error {
	for i := range ms {
		if err := c.Ack(ms[i].from); err != nil {
			return fmt.Errorf("acknowledge: %w", err)
		}
	}
	c.ledger.settle(len(ms))
	return nil
}

// receiveRaw only acknowledges messages. It does not recognize copies.
func receiveRaw(ctx context.Context, c *consumption) error {
	consumer, err := c.subscribe()
	if err != nil {
		return err
	}
	defer consumer.Close()
	c.ledger.tally.repeats = true
	return consumer.take(ctx, func(m handMessage) error {
		c.ledger.handle(m.account, m.version)
		return consumer.settle(m)
	})
}

// handSingle handles each message in a transaction of its own, with several workers.
func handSingle(ctx context.Context, c *consumption) error {
	pool, err := c.schema.pgx(context.WithoutCancel(ctx), consumeWorkers)
	if err != nil {
		return err
	}
	defer pool.Close()
	return c.byHand(ctx, consumeWorkers, oneByOne(func(ctx context.Context, m handMessage) error { return handleOne(ctx, pool, m, c.ledger) }))
}

// oneByOne settles each message that handle has handled.
func oneByOne(handle func(context.Context, handMessage) error) laneWork {
	return func(ctx context.Context, consumer *handConsumer, lane <-chan handMessage) error {
		for m := range lane {
			if err := handle(ctx, m); err != nil {
				return err
			}
			if err := consumer.settle(m); err != nil {
				return err
			}
		}
		return nil
	}
}

func handleOne(ctx context.Context, pool *pgxpool.Pool, m handMessage, l *ledger) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		entered, err := tx.Exec(ctx, handEnter, m.id, source)
		if err != nil || entered.RowsAffected() == 0 {
			return err
		}
		l.handle(m.account, m.version)
		_, err = tx.Exec(ctx, handEffect, m.account)
		return err
	})
}

// handEffectsOf is the work of a batch, in its transaction.
type handEffectsOf func(ctx context.Context, tx pgx.Tx, fresh []handMessage) error

// handBatch handles the waiting messages of a lane in one transaction.
func handBatch(effects handEffectsOf) func(ctx context.Context, c *consumption) error {
	return func(ctx context.Context, c *consumption) error {
		pool, err := c.schema.pgx(context.WithoutCancel(ctx), consumeLanes)
		if err != nil {
			return err
		}
		defer pool.Close()
		return c.byHand(ctx, consumeLanes, inBatches(func(ctx context.Context, batch []handMessage) error {
			return handleMany(ctx, pool, batch, c.ledger, effects)
		}))
	}
}

// inBatches settles each batch of waiting messages that handle has handled.
func inBatches(handle func(context.Context, []handMessage) error) laneWork {
	return func(ctx context.Context, consumer *handConsumer, lane <-chan handMessage) error {
		batch := make([]handMessage, 0, consumeBatch)
		for m := range lane {
			batch = append(batch[:0], m)
			for more := true; more && len(batch) < cap(batch); {
				select {
				case m, open := <-lane:
					if more = open; open {
						batch = append(batch, m)
					}
				default:
					more = false
				}
			}
			if err := handle(ctx, batch); err != nil {
				return err
			}
			if err := consumer.settle(batch...); err != nil {
				return err
			}
		}
		return nil
	}
}

func handleMany(ctx context.Context, pool *pgxpool.Pool, batch []handMessage, l *ledger, effects handEffectsOf) error {
	ids := make([][16]byte, len(batch))
	for i := range batch {
		ids[i] = batch[i].id
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, handEnterMany, ids, source)
		if err != nil {
			return err
		}
		fresh := make(map[[16]byte]bool, len(batch))
		var id [16]byte
		if _, err := pgx.ForEachRow(rows, []any{&id}, func() error { fresh[id] = true; return nil }); err != nil {
			return err
		}
		first := make([]handMessage, 0, len(batch))
		for i := range batch {
			if m := batch[i]; fresh[m.id] {
				delete(fresh, m.id) // its copy may be in the same batch
				first = append(first, m)
				l.handle(m.account, m.version)
			}
		}
		return effects(ctx, tx, first)
	})
}

// bulkUpdate sends one statement for all messages.
func bulkUpdate(ctx context.Context, tx pgx.Tx, fresh []handMessage) error {
	sums := map[string]int64{}
	for i := range fresh {
		sums[fresh[i].account]++
	}
	accounts, amounts := columns(sums)
	_, err := tx.Exec(ctx, handEffects, accounts, amounts)
	return err
}

// updateEach sends one statement for each message.
func updateEach(ctx context.Context, tx pgx.Tx, fresh []handMessage) error {
	for i := range fresh {
		if _, err := tx.Exec(ctx, handEffect, fresh[i].account); err != nil {
			return err
		}
	}
	return nil
}

func columns(sums map[string]int64) (accounts []string, amounts []int64) {
	accounts, amounts = make([]string, 0, len(sums)), make([]int64, 0, len(sums))
	for account, n := range sums {
		accounts, amounts = append(accounts, account), append(amounts, n)
	}
	return accounts, amounts
}

// laneWork handles and settles the messages of a lane.
type laneWork func(context.Context, *handConsumer, <-chan handMessage) error

// byHand gives each message to the lane of its account, and each lane a goroutine.
func (c *consumption) byHand(ctx context.Context, lanes int, work laneWork) error {
	consumer, err := c.subscribe()
	if err != nil {
		return err
	}
	defer consumer.Close()
	// The context that ends when the last message is settled must not cancel this work.
	group, working := errgroup.WithContext(context.WithoutCancel(ctx))
	queues := make([]chan handMessage, lanes)
	for i := range queues {
		queues[i] = make(chan handMessage, 2*consumeBatch)
		group.Go(func() error { return work(working, consumer, queues[i]) })
	}
	err = consumer.take(ctx, func(m handMessage) error {
		h := fnv.New32a()
		h.Write([]byte(m.account))
		select {
		case queues[h.Sum32()%uint32(lanes)] <- m: //nolint:gosec // a small number
			return nil
		case <-working.Done():
			return context.Cause(working)
		case <-ctx.Done():
			return nil
		}
	})
	for _, queue := range queues {
		close(queue)
	}
	if failed := group.Wait(); failed != nil {
		return failed
	}
	return err
}
