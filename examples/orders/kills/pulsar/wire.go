package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
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
type wire struct {
	url, admin string
	topic      string // public/default/order
}

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
	return wire{cfg.URL, cfg.AdminURL, cfg.Tenant + "/" + cfg.Namespace + "/" + shop.OrderTopic}, errors.Join(err, b.Close())
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
	partitions, err := client.TopicPartitions("persistent://" + w.topic)
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
	return messages, w.forget(ctx)
}

// forget removes the subscription. A consumer of the client that does so never ends.
func (w wire) forget(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, w.admin+"/admin/v2/persistent/"+w.topic+"/subscription/"+keeper, nil)
	if err != nil {
		return err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusNoContent {
		err = fmt.Errorf("remove the subscription %s: %s", keeper, resp.Status)
	}
	return errors.Join(err, resp.Body.Close())
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
