package kafka

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/messaging"
)

const (
	// producerLife is how long a producer is used. A broker forgets a producer that has sent nothing to a partition for a day
	// (producer.id.expiration.ms), and then takes its next batches in any order; a new producer begins with a single batch.
	producerLife = time.Hour
	// refusals is how often the client sends a batch again that the broker has refused for the moment, for example because the partition has
	// too few replicas. Then the call knows the reason, and not only that time is up.
	refusals = 6
	// killPatience is how long a call waits for the end of its producer, which closes its connections at once.
	killPatience = 2 * time.Second
)

// producer is an idempotent producer of Kafka's client, with connections of its own. One call of Publish uses it at a time, so that it can be ended
// when an outcome is unknown: a client never gives up a batch that it has sent, and would send it again behind the back of the call.
type producer struct {
	client *kgo.Client
	made   time.Time
	wrote  atomic.Int32 // requests with messages that have left, or are leaving, since the call began
}

// dialer returns how the producer makes its connections.
func (p *producer) dialer(dial dial) dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &counted{conn, p}, nil
	}
}

// counted is a connection that counts the requests with messages.
type counted struct {
	net.Conn

	of *producer
}

// Write counts a request before it leaves. The hook of Kafka's client comes afterwards: the broker may have the messages by then, and a call that ends in
// between would report that nothing was sent. The client writes a request at once, which begins with its length and its key.
func (c *counted) Write(request []byte) (n int, err error) {
	const produce = 0 // the key of a request with messages
	if len(request) < 6 || binary.BigEndian.Uint16(request[4:]) != produce {
		return c.Conn.Write(request)
	}
	c.of.wrote.Add(1)
	if n, err = c.Conn.Write(request); n == 0 {
		c.of.wrote.Add(-1)
	}
	return n, err
}

// producers are the producers of a broker. At most Config.Producers are in use.
type producers struct {
	broker  *Broker
	permits chan struct{}
	ending  sync.WaitGroup

	mu     sync.Mutex
	idle   []*producer
	since  time.Time // producers that were made before are not used again
	closed bool
}

func newProducers(b *Broker) *producers {
	return &producers{broker: b, permits: make(chan struct{}, b.cfg.Producers)}
}

// take returns a producer that only the caller uses, until giveBack or retire. Its error is a [messaging.ErrUnknown] if none is free, else what the broker
// says.
func (ps *producers) take(ctx context.Context) (*producer, error) {
	select {
	case ps.permits <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: the message was not sent: all %d producers are in use (Config.Producers): %w", messaging.ErrUnknown,
			ps.broker.cfg.Producers, context.Cause(ctx))
	}
	ps.mu.Lock()
	if n := len(ps.idle); n > 0 {
		p := ps.idle[n-1]
		ps.idle = ps.idle[:n-1]
		ps.mu.Unlock()
		p.wrote.Store(0)
		return p, nil
	}
	ps.mu.Unlock()
	p, err := ps.start(ctx)
	if err != nil {
		<-ps.permits
	}
	return p, err
}

// start makes a producer that has its id from the broker. So a broker that is away is noticed before anything is sent.
func (ps *producers) start(ctx context.Context) (*producer, error) {
	b := ps.broker
	p := &producer{made: time.Now()}
	client, err := kgo.NewClient(b.cfg.clientOptions(b.tls, b.log,
		kgo.Dialer(p.dialer(b.cfg.dialer(b.tls))),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),              // see topic.partition
		kgo.ManualFlushing(), kgo.MaxBufferedRecords(math.MaxInt32), // see flight
		kgo.ProducerBatchMaxBytesFn(b.batchBytes),
		kgo.ProduceRequestTimeout(b.cfg.OperationTimeout),
		kgo.RecordRetries(refusals),
		kgo.ProducerOnDataLossDetected(func(topic string, partition int32) {
			b.log.Error("oncebox: the broker has lost messages that it had confirmed (unclean.leader.election.enable, or a disk was lost)",
				"topic", topic, "partition", partition)
		}),
	)...)
	if err != nil {
		return nil, err
	}
	p.client = client
	if _, _, err := client.ProducerID(ctx); err != nil {
		ps.ending.Go(client.Close)
		return nil, err
	}
	return p, nil
}

// giveBack returns a producer whose messages all have receipts.
func (ps *producers) giveBack(p *producer) {
	ps.mu.Lock()
	if !ps.closed && time.Since(p.made) < producerLife && p.made.After(ps.since) {
		ps.idle = append(ps.idle, p)
		p = nil
	}
	ps.mu.Unlock()
	if p != nil {
		ps.ending.Go(p.client.Close)
	}
	<-ps.permits
}

// retire ends a producer that may still have messages to send. When it returns, none is handed to a connection any more.
func (ps *producers) retire(p *producer) {
	var ended sync.WaitGroup
	ended.Go(p.client.Close)
	ps.ending.Go(ended.Wait)
	adapters.WaitFor(&ended, killPatience)
	<-ps.permits
}

// renew makes the next calls begin with new producers.
func (ps *producers) renew() {
	ps.mu.Lock()
	idle := ps.idle
	ps.idle, ps.since = nil, time.Now()
	ps.mu.Unlock()
	for _, p := range idle {
		ps.ending.Go(p.client.Close)
	}
}

func (ps *producers) close() {
	ps.mu.Lock()
	ps.closed = true
	ps.mu.Unlock()
	ps.renew()
	ps.ending.Wait()
}
