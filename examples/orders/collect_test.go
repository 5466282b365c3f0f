//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/apache/pulsar-client-go/pulsar"
	pulsarlog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pulsartest"
)

// readWire reads the topic from its first message on, with a client that knows nothing of ours.
func readWire(ctx context.Context, ns *pulsartest.Namespace, topic string) (facts []eventFact, err error) {
	client, err := pulsar.NewClient(pulsar.ClientOptions{
		URL: ns.URL, MetricsRegisterer: prometheus.NewRegistry(),
		Logger: pulsarlog.NewLoggerWithSlog(slog.New(slog.DiscardHandler)),
	})
	if err != nil {
		return nil, fmt.Errorf("read the wire: %w", err)
	}
	defer client.Close()
	partitions, err := client.TopicPartitions(ns.Topic(topic))
	if err != nil {
		return nil, fmt.Errorf("read the wire: %w", err)
	}
	for i, name := range partitions {
		messages, err := readPartition(ctx, client, name)
		if err != nil {
			return nil, fmt.Errorf("read partition %s: %w", name, err)
		}
		for _, m := range messages {
			fact, err := factOf(m)
			if err != nil {
				return nil, fmt.Errorf("message %v of %s: %w", m.ID(), name, err)
			}
			fact.partition = i
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

func factOf(m pulsar.Message) (eventFact, error) {
	p := m.Properties()
	version, err := strconv.ParseInt(p["ce_aggregateversion"], 10, 64)
	if err != nil {
		return eventFact{}, err
	}
	if p["ce_subject"] != m.Key() {
		return eventFact{}, fmt.Errorf("has the key %q and is about %q", m.Key(), p["ce_subject"])
	}
	cents, err := centsOf(m.Payload())
	return eventFact{
		orderKey: orderKey{p["ce_tenantid"], p["ce_subject"]}, id: p["ce_id"], kind: p["ce_type"], version: version,
		cents: cents[p["ce_type"]],
	}, err
}

// centsOf returns what an event would add to its order's total, by its type.
func centsOf(payload []byte) (map[string]int64, error) {
	var e struct {
		Total int64 `json:"total_cents"`
		Added int64 `json:"added_cents"`
	}
	err := json.Unmarshal(payload, &e)
	return map[string]int64{"order.placed": e.Total, "order.item_added": e.Added}, err
}

// readDatabase fills in what the database knows.
func (e *evidence) readDatabase(ctx context.Context, db bun.IDB) error {
	var orders []struct {
		TenantID, ID, CustomerID, Status string
		TotalCents, Version, ItemTotal   int64
	}
	var sent []struct {
		TenantID, AggregateID, ID, EventType string
		AggregateVersion                     int64
	}
	var summaries []Summary
	err := errors.Join(
		db.NewRaw(`SELECT o.*, (SELECT coalesce(sum(qty * price_cents), 0)::bigint FROM order_items i
			WHERE i.tenant_id = o.tenant_id AND i.order_id = o.id) AS item_total FROM orders o`).Scan(ctx, &orders),
		db.NewRaw(`SELECT tenant_id, aggregate_id, id, event_type, aggregate_version FROM outbox_published`).Scan(ctx, &sent),
		db.NewRaw(`SELECT * FROM customer_summary`).Scan(ctx, &summaries),
	)
	for _, o := range orders {
		e.orders = append(e.orders, orderFact{
			orderKey: orderKey{o.TenantID, o.ID}, customer: o.CustomerID, status: o.Status,
			total: o.TotalCents, version: o.Version, itemTotal: o.ItemTotal,
		})
	}
	for _, s := range sent {
		e.sent = append(e.sent, eventFact{
			orderKey: orderKey{s.TenantID, s.AggregateID}, id: s.ID, kind: s.EventType, version: s.AggregateVersion,
		})
	}
	e.summaries = map[customer]Summary{}
	for _, s := range summaries {
		e.summaries[customer{s.TenantID, s.CustomerID}] = Summary{
			OrdersPlaced: s.OrdersPlaced, OrdersCancelled: s.OrdersCancelled, TotalCents: s.TotalCents,
		}
	}
	return err
}

// readSummaries asks the service for what the database says it has.
func (e *evidence) readSummaries(ctx context.Context, c *client) error {
	e.shown = map[customer]Summary{}
	for of := range e.summaries {
		s, err := c.summary(ctx, of)
		if err != nil {
			return err
		}
		e.shown[of] = s
	}
	return nil
}

// awaitDrained waits until nothing is on its way any more: no row in the outbox, no message that is not acknowledged.
func awaitDrained(ctx context.Context, db bun.IDB, ns *pulsartest.Namespace) error {
	return eventually(ctx, "the outbox and the subscription to be empty", func(ctx context.Context) error {
		var rows int
		err := db.NewRaw(`SELECT (SELECT count(*) FROM outbox_unsent) + (SELECT count(*) FROM outbox_held)`).Scan(ctx, &rows)
		if err != nil || rows > 0 {
			return errors.Join(err, fmt.Errorf("%d rows wait in the outbox", rows))
		}
		backlog, err := backlogOf(ctx, ns)
		if err != nil || backlog > 0 {
			return errors.Join(err, fmt.Errorf("%d messages wait in the subscription", backlog))
		}
		return nil
	})
}

func backlogOf(ctx context.Context, ns *pulsartest.Namespace) (int, error) {
	url := ns.AdminURL + "/admin/v2/persistent/" + ns.Name + "/" + orderTopic + "/partitioned-stats?getPreciseBacklog=true"
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
	s, found := stats.Subscriptions[summaryConsumer]
	if !found {
		return 0, fmt.Errorf("there is no subscription %s", summaryConsumer)
	}
	return s.Backlog, nil
}
