package main

import (
	"context"
	"errors"
	"strconv"

	client "github.com/apache/pulsar-client-go/pulsar"

	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar"
)

// broker is the outlet of the benchmark proper: the adapter, and a reader of what it wrote.
type broker struct {
	messaging.Publisher

	adapter   *pulsar.Broker
	namespace *namespace
	topic     string
	tally     *tally
	keep      *raw // gets what arrived, if not nil
}

func openPulsar(ctx context.Context, n *namespace, work backlog, keep *raw) (outlet, error) {
	b, err := pulsar.Connect(ctx, &pulsar.Config{
		URL: n.server.URL, AdminURL: n.server.AdminURL, Namespace: n.name, Topics: []string{work.topic}, Partitions: partitions,
	})
	if err != nil {
		return nil, err
	}
	return &broker{Publisher: b, adapter: b, namespace: n, topic: work.topic, tally: work.tally(), keep: keep}, nil
}

func (b *broker) verify(ctx context.Context) error {
	err := b.namespace.count(ctx, b.topic, b.tally, func(m client.Message) {
		if b.keep != nil {
			b.keep.messages = append(b.keep.messages, &client.ProducerMessage{
				Payload: m.Payload(), Key: m.Key(), Properties: m.Properties(), EventTime: m.EventTime(),
			})
		}
	})
	return errors.Join(err, b.tally.verdict())
}

// count enters what is in a topic into a tally.
func (n *namespace) count(ctx context.Context, topic string, t *tally, also ...func(client.Message)) error {
	return n.read(ctx, topic, func(m client.Message) {
		version, _ := strconv.ParseInt(m.Properties()["ce_aggregateversion"], 10, 64) // 0 is a ghost
		t.add(m.Properties()["ce_subject"], version)
		for _, take := range also {
			take(m)
		}
	})
}

func (b *broker) close(ctx context.Context) error {
	return errors.Join(b.adapter.Close(), b.namespace.removeTopic(ctx, b.topic))
}
