package inbox

import (
	"context"
	"fmt"
	"time"

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

	// unsubscribe also deletes the note that a process handles what is parked of the topic. Such a process makes the note again within a
	// minute.
	unsubscribe = `DELETE FROM {schema}.inbox_topic WHERE topic = $1::text AND consumer = $2::text`

	subscribers = `SELECT consumer, read_model FROM {schema}.inbox_topic WHERE topic = $1::text AND subscribed ORDER BY consumer`
)

// Subscribe stores subscriptions; [Inbox.Forget] removes all subscriptions of a consumer. After [Config.PollInterval] every process that
// delivers messages without a broker follows them. oncebox.App calls it.
func (i *Inbox) Subscribe(ctx context.Context, all ...Subscription) error {
	for _, s := range all {
		if _, err := i.store.SQL.Exec(ctx, i.store.DB(ctx), subscribe, s.Topic, s.Consumer, s.ReadModel); err != nil {
			return fmt.Errorf("inbox: subscribe consumer %s to topic %s: %w", s.Consumer, s.Topic, pgerr.Explain(err))
		}
	}
	return nil
}

// Unsubscribe ends single subscriptions of a consumer, once no running build of the program handles those topics any more; [Inbox.Forget]
// ends all subscriptions of a consumer. Messages that were stored already stay parked, and are handled or given up like other parked
// messages.
func (i *Inbox) Unsubscribe(ctx context.Context, all ...Subscription) error {
	for _, s := range all {
		if _, err := i.store.SQL.Exec(ctx, i.store.DB(ctx), unsubscribe, s.Topic, s.Consumer); err != nil {
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
