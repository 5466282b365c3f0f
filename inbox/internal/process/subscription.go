package process

import (
	"context"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// Subscription says that a consumer handles the messages of a topic, where no broker keeps subscriptions.
type Subscription struct {
	Topic, Consumer string
	// ReadModel says that it is the consumer of a read model.
	ReadModel bool
}

const (
	subscribe = `
INSERT INTO {schema}.inbox_topic (topic, consumer, subscribed, read_model) VALUES ($1::text, $2::text, true, $3::boolean)
ON CONFLICT (topic, consumer) DO UPDATE SET subscribed = true, read_model = excluded.read_model`

	// unsubscribe deletes the whole row, and with it the note that a process handles what is parked of the topic. Such
	// a process makes the note again within a minute.
	unsubscribe = `DELETE FROM {schema}.inbox_topic WHERE topic = $1::text AND consumer = $2::text`

	subscribers = `SELECT consumer, read_model FROM {schema}.inbox_topic WHERE topic = $1::text AND subscribed ORDER BY consumer`
)

// Subscribe stores subscriptions; inbox/consumers.Consumers.Forget removes all subscriptions of a consumer. After Config.PollInterval every process that
// delivers messages without a broker follows them. oncebox.App calls it.
func (c *Consumers) Subscribe(ctx context.Context, all ...Subscription) error {
	for _, s := range all {
		if _, err := c.h.SQL.Exec(ctx, c.h.DB(ctx), subscribe, s.Topic, s.Consumer, s.ReadModel); err != nil {
			return fmt.Errorf("inbox: subscribe consumer %s to topic %s: %w", s.Consumer, s.Topic, pgerr.Explain(err))
		}
	}
	return nil
}

// Unsubscribe ends single subscriptions of a consumer, once no running build of the program handles those topics any more; inbox/consumers.Consumers.Forget
// ends all subscriptions of a consumer. Messages that were stored already stay parked, and are handled or given up like other parked
// messages.
func (c *Consumers) Unsubscribe(ctx context.Context, all ...Subscription) error {
	for _, s := range all {
		if _, err := c.h.SQL.Exec(ctx, c.h.DB(ctx), unsubscribe, s.Topic, s.Consumer); err != nil {
			return fmt.Errorf("inbox: unsubscribe consumer %s from topic %s: %w", s.Consumer, s.Topic, pgerr.Explain(err))
		}
	}
	return nil
}

// subscribed is the remembered answer of the database about a topic.
type subscribed struct {
	all  []Subscription
	seen time.Time
}

// Subscribers returns the subscriptions of a topic, as they were within the last PollInterval.
func (c *Consumers) Subscribers(ctx context.Context, topic string) ([]Subscription, error) {
	c.mu.Lock()
	known, ok := c.subscribed[topic]
	c.mu.Unlock()
	if ok && time.Since(known.seen) < c.h.PollInterval {
		return known.all, nil
	}
	// The age counts from before the question, so an answer that took long is not kept for longer than PollInterval.
	asked := time.Now()
	ctx, cancel := context.WithTimeout(ctx, c.h.Patience())
	defer cancel()
	all, err := pgsql.Collect(c.h.SQL.Query(ctx, c.h.DB(ctx), subscribers, topic), func(scan pgsql.Scan, s *Subscription) error {
		s.Topic = topic
		return scan(&s.Consumer, &s.ReadModel)
	})
	if err != nil {
		return nil, store.Wrap("look for the consumers of topic "+topic, err)
	}
	c.mu.Lock()
	c.subscribed[topic] = subscribed{all, asked}
	c.mu.Unlock()
	return all, nil
}
