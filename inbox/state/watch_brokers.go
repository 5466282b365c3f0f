package state

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/oncebox/oncebox/internal/leader"
	"github.com/oncebox/oncebox/messaging"
)

const (
	// noteWaiting writes down what the broker said of a subscription.
	noteWaiting = `
UPDATE {schema}.inbox_subscription s SET asked_at = clock_timestamp(), backlog = $3::bigint, connections = $5::integer, unattended = $6::integer,
	missing = $7::boolean, settled = $4::bigint, error = '',
	stands_since = CASE WHEN $3::bigint > 0 THEN CASE WHEN s.backlog > 0 AND s.settled = $4::bigint THEN s.stands_since ELSE clock_timestamp() END END
WHERE consumer = $1::text AND topic = $2::text`

	noteSilence = `UPDATE {schema}.inbox_subscription SET error = $3::text, failed_at = clock_timestamp() WHERE consumer = $1::text AND topic = $2::text`
)

// askWithin bounds a question to the broker.
const askWithin = 2 * time.Second

// errCannotSay is about an adapter of somebody's own.
var errCannotSay = errors.New("the adapter of the broker cannot say what waits: it is no messaging.SubscriptionReader")

// WatchBrokers asks the broker what waits for each consumer of this database, writes it down and shows it as metrics, until ctx is done, if this is the
// process that does so: one of all does, whichever consumers it has itself. So it is known of a consumer that no process runs, too. broker nil: there
// is none, and nothing waits there. It is a part of inbox.Inbox.Run.
func (r *Reader) WatchBrokers(ctx context.Context, broker messaging.Subscriber) {
	reader := &leader.Reader[[]Consumer]{
		Name: "inbox.consumers", SQL: r.h.Patient, DB: r.h.DB(ctx), Log: r.h.Log,
		Read: func(ctx context.Context) ([]Consumer, error) { return r.ask(ctx, broker) },
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

// errSilent is for those that are not asked for any more in this round.
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

// note writes an answer down, or that there was none.
func (r *Reader) note(ctx context.Context, consumer, topic string, said messaging.SubscriptionState, failure error) error {
	var err error
	if failure != nil {
		_, err = r.h.Patient.Exec(ctx, r.h.DB(ctx), noteSilence, consumer, topic, failure.Error())
	} else {
		_, err = r.h.Patient.Exec(ctx, r.h.DB(ctx), noteWaiting, consumer, topic, said.Messages, said.Settled, said.Consumers, said.Unattended, said.Missing)
	}
	return wrapErr("write down what waits at the broker", err)
}

// ConsumersAt is [Reader.Consumers] with what the broker says now, for a program that has a way to it. Nothing is written down.
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
			t.Waiting = t.Waiting.now(c.now, said, err)
		}
	}
	return list, nil
}

// now is what is known after the broker was asked.
func (w Waiting) now(at time.Time, said messaging.SubscriptionState, failure error) Waiting {
	if failure != nil {
		if !w.Known {
			w.Error = failure.Error()
		}
		return w
	}
	next := Waiting{
		Known: true, At: at, Messages: said.Messages, Connections: said.Consumers, Unattended: said.Unattended, Missing: said.Missing,
	}
	if w.Known && next.Messages > 0 {
		next.Stands = w.Stands
	}
	return next
}
