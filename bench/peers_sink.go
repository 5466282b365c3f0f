package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	client "github.com/apache/pulsar-client-go/pulsar"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar"
)

// delivery is an event as all libraries of the comparison carry it.
type delivery struct {
	Account string `json:"account"`
	Version int64  `json:"version"`
	Payload []byte `json:"-"`
}

// sink takes what a library relays, and sends it to Pulsar if it has a namespace.
type sink struct {
	topic     string
	namespace *namespace
	producer  client.Producer
	delivered atomic.Int64
	want      int64
	all       chan struct{} // closed when all were delivered

	mu    sync.Mutex
	tally *tally
}

func newSink(work backlog) *sink {
	return &sink{topic: work.topic, want: int64(work.size()), all: make(chan struct{}), tally: work.tally()}
}

func newPulsarSink(ctx context.Context, n *namespace, work backlog) (*sink, error) {
	s := newSink(work)
	if err := n.createTopic(ctx, s.topic); err != nil {
		return nil, err
	}
	s.namespace = n
	var err error
	s.producer, err = n.client.CreateProducer(client.ProducerOptions{
		Topic: n.topic(s.topic), SendTimeout: -1, MaxPendingMessages: 10_000,
		BatchingMaxPublishDelay: time.Millisecond, BatchingMaxMessages: 1000, BatchingMaxSize: 128 << 10,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create a producer: %w", err), n.removeTopic(ctx, s.topic))
	}
	return s, nil
}

// deliver takes an event. It returns when Pulsar has confirmed it. Calls at one time share batches.
func (s *sink) deliver(ctx context.Context, d delivery) error {
	var err error
	s.mu.Lock()
	s.tally.add(d.Account, d.Version)
	if s.producer == nil {
		s.mu.Unlock()
	} else {
		confirmed := make(chan error, 1)
		s.producer.SendAsync(ctx, d.message(), func(_ client.MessageID, _ *client.ProducerMessage, err error) { confirmed <- err })
		s.mu.Unlock()
		err = <-confirmed
	}
	return s.counted(err)
}

// deliverAlone is deliver for a library that calls it for one event after the other: no batch is waited for.
func (s *sink) deliverAlone(ctx context.Context, d delivery) error {
	if s.producer == nil {
		return s.deliver(ctx, d)
	}
	s.tally.add(d.Account, d.Version)
	_, err := s.producer.Send(ctx, d.message())
	return s.counted(err)
}

// counted counts one event that was sent without an error.
func (s *sink) counted(err error) error {
	if err == nil {
		s.count(1)
	}
	return err
}

func (d delivery) message() *client.ProducerMessage {
	return &client.ProducerMessage{Key: d.Account, Payload: d.Payload, Properties: map[string]string{"version": strconv.FormatInt(d.Version, 10)}}
}

func (s *sink) count(n int64) {
	before := s.delivered.Add(n) - n
	if before < s.want && before+n >= s.want {
		close(s.all)
	}
}

// publisher is the sink for oncebox: its adapter of Pulsar, or nothing.
func (s *sink) publisher(ctx context.Context) (p messaging.Publisher, done func() error, err error) {
	if s.producer == nil {
		return &counting{to: nowhere{}, sink: s}, func() error { return nil }, nil
	}
	b, err := pulsar.Connect(ctx, &pulsar.Config{
		URL: s.namespace.server.URL, AdminURL: s.namespace.server.AdminURL, Namespace: s.namespace.name, Topics: []string{s.topic}, Partitions: partitions,
	})
	if err != nil {
		return nil, nil, err
	}
	return &counting{to: b, sink: s}, b.Close, nil
}

// counting enters what is published into the tally of a sink.
type counting struct {
	to   messaging.Publisher
	sink *sink
}

// Publish passes msgs on.
func (c *counting) Publish(ctx context.Context, msgs []event.Envelope) error {
	c.sink.mu.Lock()
	for i := range msgs {
		c.sink.tally.add(msgs[i].AggregateID, msgs[i].AggregateVersion)
	}
	c.sink.mu.Unlock()
	err := c.to.Publish(ctx, msgs)
	c.sink.count(int64(confirmed(msgs, err)))
	return err
}

// nowhere takes everything at once.
type nowhere struct{}

// Publish does nothing.
func (nowhere) Publish(context.Context, []event.Envelope) error { return nil }

func (s *sink) close(ctx context.Context) error {
	if s.producer == nil {
		return nil
	}
	s.producer.Close()
	return s.namespace.removeTopic(ctx, s.topic)
}
