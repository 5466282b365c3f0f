package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/devenv"
	"github.com/oncebox/oncebox/messaging/kafka"
	"github.com/oncebox/oncebox/messaging/wire"
)

// kafkaSite is a Kafka broker.
type kafkaSite struct{ kafka *devenv.KafkaServer }

func openKafkaSite(ctx context.Context) (brokerSite, error) {
	server, err := devenv.Kafka(ctx, nil)
	if err != nil {
		return nil, err
	}
	return &kafkaSite{server}, nil
}

func (*kafkaSite) server() string { return "Kafka 4.1" }

func (*kafkaSite) settings() string {
	return "Produce from memory by one goroutine, idempotent, all replicas, 4 partitions, the client's own batches"
}

func (s *kafkaSite) connect(ctx context.Context) (oncebox.Broker, error) {
	return kafka.Connect(ctx, &kafka.Config{URL: s.kafka.URL, Partitions: partitions})
}

func (s *kafkaSite) close() error { return s.kafka.Stop() }

func (s *kafkaSite) byHand(ctx context.Context, topic string, sample []event.Envelope) (hand, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(s.kafka.URL), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	if err != nil {
		return nil, fmt.Errorf("connect to Kafka: %w", err)
	}
	if _, err := kadm.NewClient(client).CreateTopic(ctx, partitions, 1, nil, topic); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		client.Close()
		return nil, fmt.Errorf("make a topic: %w", err)
	}
	h := &kafkaHand{client: client}
	format := wire.NewFormat(wire.Binding{Prefix: "ce_"})
	for i := range sample {
		r := &kgo.Record{Topic: topic, Key: []byte(sample[i].RoutingKey), Value: sample[i].Payload, Timestamp: sample[i].OccurredAt}
		for key, value := range format.Properties(nil, &sample[i]) {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: key, Value: []byte(value)})
		}
		h.records = append(h.records, r)
	}
	return h, nil
}

// kafkaHand publishes by franz-go.
type kafkaHand struct {
	client  *kgo.Client
	records []*kgo.Record
}

// record returns a copy, because the client writes the place of a record into it.
func (h *kafkaHand) record(i int) *kgo.Record {
	r := *h.records[i%len(h.records)]
	return &r
}

func (h *kafkaHand) flood(ctx context.Context, n int) error {
	var failed atomic.Pointer[error]
	for i := range n {
		h.client.Produce(ctx, h.record(i), func(_ *kgo.Record, err error) {
			if err != nil {
				failed.Store(&err)
			}
		})
	}
	err := h.client.Flush(ctx)
	if refused := failed.Load(); refused != nil {
		err = errors.Join(err, *refused)
	}
	return err
}

func (h *kafkaHand) send(ctx context.Context, i int) error {
	return h.client.ProduceSync(ctx, h.record(i)).FirstErr()
}

func (h *kafkaHand) close() error {
	h.client.Close()
	return nil
}
