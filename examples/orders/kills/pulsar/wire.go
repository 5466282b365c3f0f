package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"
	pulsarlog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/examples/orders/kills"
	"github.com/oncebox/oncebox/examples/orders/shop"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar"
)

// keeper is a subscription that nobody receives from. The broker keeps the messages for it, whatever its retention is.
const keeper = "kills"

// wire reads the topic with readers of Pulsar's client. It has no credentials, so the broker must let it in without.
type wire struct{ url, topic string }

// watch makes the topic with its partitions, and the subscription that keeps the messages.
func watch(ctx context.Context) (kills.Wire, error) {
	var cfg pulsar.Config
	if err := config.Env("ONCEBOX_PULSAR_", &cfg); err != nil {
		return nil, err
	}
	b, err := pulsar.Connect(ctx, &cfg)
	if err != nil {
		return nil, err
	}
	err = b.Declare(ctx, nil, []messaging.Subscription{{Topic: shop.OrderTopic, Name: keeper}})
	cfg = cfg.WithDefaults()
	return wire{cfg.URL, "persistent://" + cfg.Tenant + "/" + cfg.Namespace + "/" + shop.OrderTopic}, errors.Join(err, b.Close())
}

// Read implements kills.Wire. It lets the broker forget the messages afterwards.
func (w wire) Read(ctx context.Context) (messages []kills.Message, err error) {
	client, err := pulsarclient.NewClient(pulsarclient.ClientOptions{
		URL: w.url, MetricsRegisterer: prometheus.NewRegistry(), Logger: pulsarlog.NewLoggerWithSlog(slog.New(slog.DiscardHandler)),
	})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	partitions, err := client.TopicPartitions(w.topic)
	if err != nil {
		return nil, err
	}
	for n, partition := range partitions {
		err := read(ctx, client, partition, func(m pulsarclient.Message) {
			attributes := map[string]string{}
			for name, value := range m.Properties() {
				if attribute, ok := strings.CutPrefix(name, "ce_"); ok {
					attributes[attribute] = value
				}
			}
			messages = append(messages, kills.Message{Partition: n, Key: m.Key(), Attributes: attributes, Payload: m.Payload()})
		})
		if err != nil {
			return nil, err
		}
	}
	c, err := client.Subscribe(pulsarclient.ConsumerOptions{Topic: w.topic, SubscriptionName: keeper})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return messages, c.Unsubscribe()
}

// read reads a partition from its first message on.
func read(ctx context.Context, client pulsarclient.Client, partition string, take func(pulsarclient.Message)) error {
	r, err := client.CreateReader(pulsarclient.ReaderOptions{Topic: partition, StartMessageID: pulsarclient.EarliestMessageID()})
	if err != nil {
		return err
	}
	defer r.Close()
	for r.HasNext() {
		m, err := r.Next(ctx)
		if err != nil {
			return err
		}
		take(m)
	}
	return nil
}
