package kills

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/examples/orders/shop"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/brokers"
)

// wire is the subscription with which the trial reads what was published.
const wire = "wire"

// quiet is how long no message may come before the trial asks whether there are more.
const quiet = 2 * time.Second

// Watch sets Backlog and Wire, the latter to a function that reads with the adapter. It makes the subscription that reads the wire, because some
// brokers keep messages only for subscriptions that exist. So it comes before the first process.
func (t *Trial) Watch(ctx context.Context, b brokers.Connection) error {
	reader, ok := b.(messaging.SubscriptionReader)
	if !ok {
		return errors.New("the adapter does not report how many messages wait")
	}
	if d, ok := b.(messaging.Declarer); ok {
		if err := d.Declare(ctx, []string{shop.OrderTopic}, []messaging.Subscription{{Topic: shop.OrderTopic, Name: wire}}); err != nil {
			return err
		}
	}
	// Not every broker counts messages that a consumer has and has not settled. So the database counts them.
	t.Backlog = func(ctx context.Context) (n int, err error) {
		err = t.DB.NewRaw(`SELECT (SELECT count(*) FROM outbox_published) - (SELECT count(*) FROM inbox WHERE consumer = ?)`,
			shop.SummaryConsumer).Scan(ctx, &n)
		return n, err
	}
	t.Wire = func(ctx context.Context) ([]Fact, error) { return readWire(ctx, b, reader) }
	return nil
}

// readWire receives all messages of the subscription. The adapter keeps the order of each key, so all count as one partition.
func readWire(ctx context.Context, b brokers.Connection, reader messaging.SubscriptionReader) (facts []Fact, err error) {
	r, err := b.Subscribe(ctx, messaging.Subscription{Topic: shop.OrderTopic, Name: wire, Queue: 1000})
	if err != nil {
		return nil, fmt.Errorf("read the wire: %w", err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for {
		waiting, cancel := context.WithTimeout(ctx, quiet)
		m, err := r.Receive(waiting)
		cancel()
		switch {
		case err == nil:
		case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
			s, err := reader.ReadSubscription(ctx, shop.OrderTopic, wire)
			if err != nil || s.Messages == 0 {
				return facts, err
			}
			continue
		default:
			return nil, fmt.Errorf("read the wire: %w", err)
		}
		fact, err := FactOf(&m.Envelope, 0)
		if err != nil {
			return nil, fmt.Errorf("message %s: %w", m.ID, err)
		}
		facts = append(facts, fact)
		if err := r.Ack(ctx, m); err != nil {
			return nil, fmt.Errorf("read the wire: %w", err)
		}
	}
}
