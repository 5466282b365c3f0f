package state

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/leader"
	"github.com/oncebox/oncebox/messaging"
)

const (
	// noteWaiting stores the answer of the broker about a subscription.
	noteWaiting = `
UPDATE {schema}.inbox_topic s SET asked_at = clock_timestamp(), backlog = $3::bigint, connections = $5::integer, unattended = $6::integer,
	missing = $7::boolean, settled = $4::bigint, error = '', backlog_precision = upper($8::text), oldest_at = $10::timestamptz,
	many_since = CASE WHEN $3::bigint > $9::bigint THEN coalesce(s.many_since, clock_timestamp()) END,
	stands_since = CASE WHEN $3::bigint > 0 THEN CASE WHEN s.backlog > 0 AND s.settled = $4::bigint THEN s.stands_since ELSE clock_timestamp() END END
WHERE consumer = $1::text AND topic = $2::text AND subscribed`

	noteSilence = `
UPDATE {schema}.inbox_topic SET error = $3::text, failed_at = clock_timestamp() WHERE consumer = $1::text AND topic = $2::text AND subscribed`
)

// askWithin bounds a request to the broker.
const askWithin = 2 * time.Second

// errCannotSay is for a broker adapter that does not implement messaging.SubscriptionReader.
var errCannotSay = errors.New("the adapter of the broker cannot say what waits: it is no messaging.SubscriptionReader")

// WatchBrokers asks the broker how many messages wait for each consumer of this database, stores the answers and shows them as metrics,
// until ctx is done. Only one process of all does so at a time, for all consumers, so that consumers are included which no process runs. If
// broker is nil there is none, and no message waits there. It is a part of inbox.Inbox.Run.
func (r *Reader) WatchBrokers(ctx context.Context, broker messaging.Subscriber) {
	writer, done := r.writer(), progress{}
	writer.Tidies = true
	reader := &leader.Reader[[]Consumer]{
		Name: "inbox.consumers", SQL: r.h.Patient, DB: r.h.DB(ctx), Log: r.h.Log,
		Read: func(ctx context.Context) ([]Consumer, error) {
			list, err := r.ask(ctx, broker)
			if err != nil {
				done = progress{} // another process may lead before the next reading, and count what is done until then
				return nil, err
			}
			writer.Note(ctx, r.h.DB(ctx), done.since(list))
			return list, nil
		},
	}
	defer r.gauges.all.Show(func(_ context.Context, to metric.Observer) error {
		if list, ok := reader.Latest(); ok {
			r.gauges.showConsumers(to, list)
		}
		return nil
	})()
	reader.Run(ctx)
}

func (r *Reader) ask(ctx context.Context, broker messaging.Subscriber) ([]Consumer, error) {
	list, err := r.Consumers(ctx)
	if err != nil {
		return nil, err
	}
	silent := false
	for n := range list {
		for _, t := range list[n].Topics {
			said, err := r.waiting(ctx, broker, t.Topic, list[n].Consumer, silent)
			silent = silent || err != nil
			if err := r.note(ctx, list[n].Consumer, t.Topic, said, err); err != nil {
				return nil, err
			}
		}
	}
	return r.Consumers(ctx)
}

// errSilent is stored for the subscriptions that are left out of a round after the broker did not answer for one.
var errSilent = errors.New("the broker has not answered for another subscription")

func (r *Reader) waiting(ctx context.Context, broker messaging.Subscriber, topic, name string, silent bool) (said messaging.SubscriptionState, err error) {
	reader, can := broker.(messaging.SubscriptionReader)
	switch {
	case broker == nil:
		return said, nil
	case !can:
		return said, errCannotSay
	case silent:
		return said, errSilent
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	return reader.ReadSubscription(ctx, topic, name)
}

// note stores an answer, or that there was none.
func (r *Reader) note(ctx context.Context, consumer, topic string, said messaging.SubscriptionState, failure error) error {
	var err error
	if failure != nil {
		_, err = r.h.Patient.Exec(ctx, r.h.DB(ctx), noteSilence, consumer, topic, failure.Error())
	} else {
		_, err = r.h.Patient.Exec(ctx, r.h.DB(ctx), noteWaiting, consumer, topic, said.Messages, said.Settled, said.Consumers, said.Unattended, said.Missing,
			said.Precision.String(), Many, store.Storable(said.Oldest))
	}
	return store.Wrap("store how many messages wait at the broker", err)
}

// ConsumersAt is [Reader.Consumers] with fresh answers of the broker, for a program that can reach it. The answers are not stored.
func (r *Reader) ConsumersAt(ctx context.Context, broker messaging.SubscriptionReader) ([]Consumer, error) {
	list, err := r.Consumers(ctx)
	if err != nil {
		return nil, err
	}
	silent := false
	for n := range list {
		c := &list[n]
		for m := range c.Topics {
			t := &c.Topics[m]
			said, err := messaging.SubscriptionState{}, errSilent
			if !silent {
				asking, cancel := context.WithTimeout(ctx, askWithin)
				said, err = broker.ReadSubscription(asking, t.Topic, c.Consumer)
				cancel()
			}
			silent = silent || err != nil
			t.Waiting.asked(c.now, said, err)
		}
	}
	return list, nil
}

// asked records the answer of the broker, or why there is none.
func (w *Waiting) asked(at time.Time, said messaging.SubscriptionState, failure error) {
	if failure != nil {
		if !w.Known {
			w.Error = failure.Error()
		}
		return
	}
	next := Waiting{
		Known: true, At: at, Messages: said.Messages, Precision: said.Precision, Oldest: said.Oldest,
		Connections: said.Consumers, Unattended: said.Unattended, Missing: said.Missing,
	}
	if w.Known && next.Messages > Many {
		next.Many = w.Many
	}
	if w.Known && next.Messages > 0 {
		next.Stands = w.Stands
	}
	*w = next
}
