package inbox

import (
	"context"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// Subscription says that a consumer handles the messages of a topic, where there is no broker to know it.
type Subscription struct {
	Topic, Consumer string
	// ReadModel says that it is the consumer of a read model.
	ReadModel bool
}

const (
	subscribe = `
INSERT INTO {schema}.inbox_subscription (topic, consumer, read_model) VALUES ($1::text, $2::text, $3::boolean)
ON CONFLICT (topic, consumer) DO UPDATE SET read_model = excluded.read_model`

	unsubscribe = `DELETE FROM {schema}.inbox_subscription WHERE topic = $1::text AND consumer = $2::text`

	subscribers = `SELECT consumer, read_model FROM {schema}.inbox_subscription WHERE topic = $1::text ORDER BY consumer`
)

// Subscribe stores subscriptions, until [Inbox.Forget] removes those of a consumer. From a [Config.PollInterval] later on every process that
// delivers messages without a broker knows of them. oncebox.App calls it.
func (i *Inbox) Subscribe(ctx context.Context, all ...Subscription) error {
	for _, s := range all {
		if _, err := i.store.SQL.Exec(ctx, i.store.DB(ctx), subscribe, s.Topic, s.Consumer, s.ReadModel); err != nil {
			return fmt.Errorf("inbox: subscribe consumer %s to topic %s: %w", s.Consumer, s.Topic, pgsql.Explain(err))
		}
	}
	return nil
}

// Unsubscribe ends subscriptions of a consumer that handles other topics still, in any build that runs; [Inbox.Forget] ends all of a
// consumer. What was stored for it already stays parked, and is handled or given up like other parked messages.
func (i *Inbox) Unsubscribe(ctx context.Context, all ...Subscription) error {
	for _, s := range all {
		if _, err := i.store.SQL.Exec(ctx, i.store.DB(ctx), unsubscribe, s.Topic, s.Consumer); err != nil {
			return fmt.Errorf("inbox: unsubscribe consumer %s from topic %s: %w", s.Consumer, s.Topic, pgsql.Explain(err))
		}
	}
	return nil
}

// subscribed is what was known of a topic.
type subscribed struct {
	all  []Subscription
	seen time.Time
}

// subscribers returns the subscriptions of a topic, as they were within the last PollInterval.
func (i *Inbox) subscribers(ctx context.Context, topic string) ([]Subscription, error) {
	i.mu.Lock()
	known, ok := i.subscribed[topic]
	i.mu.Unlock()
	if ok && time.Since(known.seen) < i.cfg.PollInterval {
		return known.all, nil
	}
	asked := time.Now()
	ctx, cancel := i.store.Bounded(ctx)
	defer cancel()
	all, err := pgsql.Collect(i.store.SQL.Query(ctx, i.store.DB(ctx), subscribers, topic), func(scan pgsql.Scan, s *Subscription) error {
		s.Topic = topic
		return scan(&s.Consumer, &s.ReadModel)
	})
	if err != nil {
		return nil, wrapErr("look for the consumers of topic "+topic, err)
	}
	i.mu.Lock()
	i.subscribed[topic] = subscribed{all, asked}
	i.mu.Unlock()
	return all, nil
}
