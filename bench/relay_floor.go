package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// floorSettings are the best that were found for a producer alone: more goroutines are slower, larger and longer batches
// or more pending messages make no difference.
const floorSettings = "SendAsync from memory by one goroutine, 4 partitions, batches of 1,000 messages, 128 KiB or 1 ms, 10,000 pending"

func floorProducer(topic string) pulsar.ProducerOptions {
	return pulsar.ProducerOptions{
		Topic: topic, SendTimeout: -1, MaxPendingMessages: 10_000,
		BatchingMaxPublishDelay: time.Millisecond, BatchingMaxMessages: 1000, BatchingMaxSize: 128 << 10,
	}
}

// raw sends messages from memory.
type raw struct {
	namespace *namespace
	meter     meter
	messages  []*pulsar.ProducerMessage
}

// send sends the messages again and again, n in all, until all are acknowledged.
func (r *raw) send(ctx context.Context, n int, to *series) (err error) {
	const topic = "bench-raw"
	if err := r.namespace.createTopic(ctx, topic); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.namespace.removeTopic(ctx, topic)) }()
	producer, err := r.namespace.client.CreateProducer(floorProducer(r.namespace.topic(topic)))
	if err != nil {
		return fmt.Errorf("create a producer: %w", err)
	}
	defer producer.Close()
	runtime.GC() // no run pays for the garbage of another
	return labelled(ctx, "raw", func(ctx context.Context) error {
		cpu := r.meter.read()
		took, err := r.flood(ctx, producer, n)
		to.add(float64(n)/took.Seconds(), r.meter.read().since(cpu, float64(n)))
		return err
	})
}

func (r *raw) flood(ctx context.Context, producer pulsar.Producer, n int) (time.Duration, error) {
	var acked, failed atomic.Int64
	done := make(chan struct{})
	answer := func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
		if err != nil {
			failed.Add(1)
		}
		if acked.Add(1) == int64(n) {
			close(done)
		}
	}
	start := time.Now()
	for i := range n {
		producer.SendAsync(ctx, r.messages[i%len(r.messages)], answer)
	}
	select {
	case <-done:
	case <-ctx.Done():
		return 0, fmt.Errorf("%d of %d messages acknowledged: %w", acked.Load(), n, ctx.Err())
	}
	took := time.Since(start)
	if failed.Load() > 0 {
		return 0, fmt.Errorf("%d of %d messages failed", failed.Load(), n)
	}
	return took, nil
}
