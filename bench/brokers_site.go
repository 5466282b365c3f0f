package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

// brokerSite is the server of one broker, with oncebox's adapter and the broker's own client.
type brokerSite interface {
	// server names the server and its version.
	server() string
	// connect opens the adapter.
	connect(ctx context.Context) (oncebox.Broker, error)
	// byHand opens the client for messages of a topic, which it makes.
	byHand(ctx context.Context, topic string, sample []event.Envelope) (hand, error)
	// settings describes the settings of the client.
	settings() string
	close() error
}

// hand publishes by the broker's client alone, with the best settings that were found.
type hand interface {
	// flood publishes n messages without waiting between them, and returns when all have their receipts.
	flood(ctx context.Context, n int) error
	// send publishes one message and waits for its receipt.
	send(ctx context.Context, i int) error
	close() error
}

func openSite(ctx context.Context, name string) (brokerSite, error) {
	open := map[string]func(context.Context) (brokerSite, error){
		"pulsar": openPulsarSite, "nats": openNATSSite, "kafka": openKafkaSite, "rabbitmq": openRabbitSite,
	}[name]
	if open == nil {
		return nil, fmt.Errorf("there is no broker %q", name)
	}
	return open(ctx)
}

func brokerNames() []string { return []string{"pulsar", "nats", "kafka", "rabbitmq"} }

// adapted is the outlet of one run: the adapter, and a subscription that counts what arrived.
type adapted struct {
	messaging.Publisher

	adapter oncebox.Broker
	work    backlog
	sub     messaging.Subscription
	keep    *[]event.Envelope // gets what arrived, if not nil
}

// openAdapted declares the subscription before the first message is published, because some brokers keep messages only for subscriptions that
// exist.
func openAdapted(ctx context.Context, site brokerSite, work backlog) (*adapted, error) {
	b, err := site.connect(ctx)
	if err != nil {
		return nil, err
	}
	d := &adapted{Publisher: b, adapter: b, work: work, sub: messaging.Subscription{Topic: work.topic, Name: "bench", Queue: 1000}}
	if declarer, ok := b.(messaging.Declarer); ok {
		if err := declarer.Declare(ctx, []string{work.topic}, []messaging.Subscription{d.sub}); err != nil {
			return nil, errors.Join(err, b.Close())
		}
	}
	return d, nil
}

// verify receives the whole backlog and checks that it came once and in order.
func (d *adapted) verify(ctx context.Context) (err error) {
	r, err := d.adapter.Subscribe(ctx, d.sub)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	tally := d.work.tally()
	for range d.work.size() {
		m, err := r.Receive(ctx)
		if err != nil {
			return err
		}
		tally.add(m.AggregateID, m.AggregateVersion)
		if d.keep != nil {
			*d.keep = append(*d.keep, m.Envelope)
		}
		if err := r.Ack(ctx, m); err != nil {
			return err
		}
	}
	return tally.verdict()
}

func (d *adapted) close(context.Context) error { return d.adapter.Close() }
