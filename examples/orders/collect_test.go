//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/apache/pulsar-client-go/pulsar"
	pulsarlog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/examples/orders/kills"
	"github.com/oncebox/oncebox/examples/orders/shop"
	"github.com/oncebox/oncebox/internal/pulsartest"
)

// readWire reads the topic from its first message on, with a client that knows nothing of ours.
func readWire(ctx context.Context, ns *pulsartest.Namespace) (facts []kills.Fact, err error) {
	client, err := pulsar.NewClient(pulsar.ClientOptions{
		URL: ns.URL, MetricsRegisterer: prometheus.NewRegistry(),
		Logger: pulsarlog.NewLoggerWithSlog(slog.New(slog.DiscardHandler)),
	})
	if err != nil {
		return nil, fmt.Errorf("read the wire: %w", err)
	}
	defer client.Close()
	partitions, err := client.TopicPartitions(ns.Topic(shop.OrderTopic))
	if err != nil {
		return nil, fmt.Errorf("read the wire: %w", err)
	}
	for i, name := range partitions {
		messages, err := readPartition(ctx, client, name)
		if err != nil {
			return nil, fmt.Errorf("read partition %s: %w", name, err)
		}
		for _, m := range messages {
			fact, err := factOf(m, i)
			if err != nil {
				return nil, fmt.Errorf("message %v of %s: %w", m.ID(), name, err)
			}
			facts = append(facts, fact)
		}
	}
	return facts, nil
}

func readPartition(ctx context.Context, client pulsar.Client, name string) (messages []pulsar.Message, err error) {
	reader, err := client.CreateReader(pulsar.ReaderOptions{Topic: name, StartMessageID: pulsar.EarliestMessageID()})
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	for reader.HasNext() {
		m, err := reader.Next(ctx)
		if err != nil {
			return nil, err
		}
		messages = append(messages, m)
	}
	return messages, nil
}

func factOf(m pulsar.Message, partition int) (kills.Fact, error) {
	p := m.Properties()
	version, err := strconv.ParseInt(p["ce_aggregateversion"], 10, 64)
	if err != nil {
		return kills.Fact{}, err
	}
	if p["ce_subject"] != m.Key() {
		return kills.Fact{}, fmt.Errorf("has the key %q and is about %q", m.Key(), p["ce_subject"])
	}
	return kills.FactOf(&event.Envelope{
		ID: p["ce_id"], TenantID: p["ce_tenantid"], Type: p["ce_type"], AggregateID: p["ce_subject"], AggregateVersion: version, Payload: m.Payload(),
	}, partition)
}

func backlogOf(ctx context.Context, ns *pulsartest.Namespace) (int, error) {
	url := ns.AdminURL + "/admin/v2/persistent/" + ns.Name + "/" + shop.OrderTopic + "/partitioned-stats?getPreciseBacklog=true"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var stats struct {
		Subscriptions map[string]struct {
			Backlog int `json:"msgBacklog"` //nolint:tagliatelle // as Pulsar spells it
		} `json:"subscriptions"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&stats); err != nil {
		return 0, err
	}
	s, found := stats.Subscriptions[shop.SummaryConsumer]
	if !found {
		return 0, fmt.Errorf("there is no subscription %s", shop.SummaryConsumer)
	}
	return s.Backlog, nil
}
