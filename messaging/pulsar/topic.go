package pulsar

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/answer"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/topics"
)

// topic keeps the producers of one topic. A producer belongs to one call of Publish at a time, because the client's producers cannot be
// used, flushed and closed at the same time. A call may get any of them without harm to the order of a key: the messages of earlier calls
// were stored, or were reported as not stored and their producer was retired.
type topic struct {
	broker *Broker
	name   string
	idle   chan *producer
	room   chan struct{} // a token per producer that exists or is being made
	lull   *time.Timer   // runs while nobody publishes

	// unbatched says that some consumers of the topic need every message in an entry of its own.
	unbatched atomic.Bool
	// careful says that the broker has refused a whole batch because one of its messages is too large, which only the broker can find out.
	// The next call sends messages one by one, to find that message.
	careful atomic.Bool

	audience *topics.Audience
}

// producer is a producer of Pulsar's client, with the settings that it was made with.
type producer struct {
	pulsarclient.Producer
	batched bool
	spare   []*pulsarclient.ProducerMessage // sent messages that the client does not use any more
}

// maxSpare is how many messages a producer keeps for the next call.
const maxSpare = 2000

// message returns an empty or used message to be filled.
func (p *producer) message() *pulsarclient.ProducerMessage {
	n := len(p.spare)
	if n == 0 {
		return &pulsarclient.ProducerMessage{}
	}
	m := p.spare[n-1]
	p.spare = p.spare[:n-1]
	return m
}

// takeBack keeps message structs for the next call, and drops the references to their contents.
func (p *producer) takeBack(sent []*pulsarclient.ProducerMessage) {
	for _, m := range sent[:min(len(sent), maxSpare-len(p.spare))] {
		*m = pulsarclient.ProducerMessage{Properties: m.Properties}
		clear(m.Properties)
		p.spare = append(p.spare, m)
	}
}

func newTopic(b *Broker, name string) *topic {
	t := &topic{broker: b, name: name, idle: make(chan *producer, b.cfg.Producers), room: make(chan struct{}, b.cfg.Producers)}
	t.unbatched.Store(b.cfg.DisableBatching)
	t.audience = b.keeper.NewAudience(name, &t.unbatched)
	t.lull = time.AfterFunc(math.MaxInt64, t.rest)
	t.lull.Stop()
	return t
}

// checkOut returns a producer that only the caller uses, until it gives it back or retires it. The error is that of all messages of the
// call.
func (t *topic) checkOut(ctx context.Context) (*producer, error) {
	for {
		p, err := t.obtain(ctx)
		if err != nil || p.batched != t.unbatched.Load() {
			return p, err
		}
		t.retire(p) // made with batches, which the topic's consumers do not allow
	}
}

func (t *topic) obtain(ctx context.Context) (*producer, error) {
	if ctx.Err() != nil {
		return nil, notHandedOver(ctx)
	}
	select {
	case p := <-t.idle:
		return p, nil
	default:
	}
	select {
	case p := <-t.idle:
		return p, nil
	case t.room <- struct{}{}:
		return t.add(ctx)
	case <-ctx.Done():
		return nil, notHandedOver(ctx)
	}
}

// add makes a producer. The client's attempt cannot be cancelled; a producer that comes too late for this call serves the next.
func (t *topic) add(ctx context.Context) (*producer, error) {
	made := make(chan *producer)
	failed := make(chan error, 1)
	t.broker.background.Go(func() {
		p, err := t.open(ctx)
		if err != nil {
			<-t.room
			failed <- err
			return
		}
		select {
		case made <- p:
		case <-ctx.Done():
			if t.broker.open.Err() != nil {
				p.Close()
				return
			}
			t.giveBack(p)
		}
	})
	select {
	case p := <-made:
		return p, nil
	case err := <-failed:
		return nil, t.unopened(ctx, err)
	case <-ctx.Done():
		return nil, t.unopened(ctx, context.Cause(ctx))
	}
}

// open makes a producer with Pulsar's client, which tries once. open tries again until ctx is done.
func (t *topic) open(ctx context.Context) (*producer, error) {
	b := t.broker
	t.audience.LookFirst()
	for attempt := 1; ; attempt++ {
		batched := !t.unbatched.Load()
		p, err := b.client.CreateProducer(pulsarclient.ProducerOptions{
			Topic:                   b.keeper.FullName(t.name),
			Properties:              b.introduction(),
			SendTimeout:             -1, // off: a message that times out may be stored all the same, and the timer outlives the client
			DisableBlockIfQueueFull: true,
			MaxPendingMessages:      2000, // per partition
			DisableBatching:         !batched,
			BatchingMaxPublishDelay: time.Millisecond, // partitions are flushed one after the other; this one lets none wait
			BatchingMaxMessages:     1000,
			BatchingMaxSize:         uint(batchBytes(b.cfg.MaxMessageBytes)),
			BackOffPolicyFunc:       newReconnect,
		})
		if err == nil {
			return &producer{Producer: p, batched: batched}, nil
		}
		if answer.IsTopicTrouble(err) || answer.IsNotLetIn(err) {
			return nil, err
		}
		if adapters.Pause(ctx, attempt) != nil {
			return nil, err
		}
	}
}

// batchBytes is the most bytes of payload in one batch. The properties of a message may have half of the limit at most, so a batch with
// them is within the limit for one message. The client counts only payloads when it checks whether a message still fits, so a message
// larger than this has a batch of its own.
func batchBytes(limit int) int { return min(128<<10, limit/2) }

// unopened turns the reason why there is no producer into an error of one of the classes of package messaging.
func (t *topic) unopened(ctx context.Context, err error) error {
	switch {
	case answer.IsTopicTrouble(err):
		return &messaging.TopicError{Topic: t.name, Err: t.broker.keeper.UnknownPlace(err)}
	case errors.Is(context.Cause(ctx), context.Canceled):
		return notHandedOver(ctx)
	default:
		return answer.Down("publish", t.broker.cfg.URL, err)
	}
}

// giveBack makes p available to the next call.
func (t *topic) giveBack(p *producer) {
	t.idle <- p
	if t.broker.cfg.ProducerIdle > 0 {
		t.lull.Reset(t.broker.cfg.ProducerIdle)
	}
}

// rest retires the producers that were not used for a while: for each partition of a producer the client wakes up a thousand times a
// second, to look for a batch.
func (t *topic) rest() {
	leave, err := t.broker.calls.Enter("pulsar: rest")
	if err != nil {
		return // closed
	}
	defer leave()
	for {
		select {
		case p := <-t.idle:
			t.retire(p)
		default:
			return
		}
	}
}

// retire closes a producer that is not used any more, in the background. Close may take long, or hang until the client is closed. It panics
// if the client closes the producer at the same moment while reconnecting.
func (t *topic) retire(p *producer) {
	<-t.room
	t.broker.background.Go(func() {
		defer func() { _ = recover() }()
		p.Close()
	})
}
