package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/kafka/internal/topics"
	"github.com/oncebox/oncebox/messaging/receipts"
	"github.com/oncebox/oncebox/messaging/wire"
)

// flight sends the messages of one call through one producer.
//
// The order of a key is that of its partition, and Kafka's client keeps it: batches of a partition carry numbers, the broker takes them only in their
// order, and when one fails for good, the client fails all messages of the partition that it has. What the client does not have yet it would send
// behind the failed ones. So it flushes by hand: it gets all messages of the call first, and sends nothing before. No message holds others back,
// and after a failure the producer is not used again.
//
// A refused batch fails with all its messages, and all later ones of its partition. Only a message that was sent alone is known to be the reason. So
// after such a refusal the messages of the topic are sent one by one, until a call goes well.
type flight struct {
	keeper   *topics.Keeper
	producer *producer
	of       map[string]*topic // by name
	msgs     []event.Envelope
	careful  bool
	faulty   atomic.Bool // the broker, or the client, has refused a message
}

func newFlight(k *topics.Keeper, p *producer, of map[string]*topic, msgs []event.Envelope) *flight {
	f := &flight{keeper: k, producer: p, of: of, msgs: msgs}
	for _, t := range of {
		f.careful = f.careful || t != nil && t.careful.Load()
	}
	return f
}

// run sends the messages at these indexes and returns the errors by index. It returns false if the producer must not be used again.
func (f *flight) run(ctx context.Context, indexes []int) (failed map[int]error, sound bool) {
	window := receipts.Window{Flush: f.producer.client.Flush}
	if f.careful {
		window.InFlight = 1
	}
	failed, sound = window.Publish(ctx, f.msgs, indexes, f.send)
	if f.careful && sound {
		for _, t := range f.of {
			if t != nil {
				t.careful.Store(false) // the message that the broker refuses was found
			}
		}
	}
	return failed, sound && !f.faulty.Load()
}

// send hands a message to the client, which keeps it until it is flushed.
func (f *flight) send(_ context.Context, i int, receipt func(error)) error {
	env := &f.msgs[i]
	t := f.of[env.Topic]
	r := t.record(env)
	if size := sizeOf(r); size > t.limit {
		receipt(messaging.Permanent(fmt.Errorf("kafka: the message takes up to %d bytes, at most %d are allowed "+
			"(Config.MaxMessageBytes, ONCEBOX_KAFKA_MAX_MESSAGE_BYTES, or %s of topic %s)", size, t.limit, topics.MaxMessageBytes, t.full)))
		return nil
	}
	// The client may not give up a message when ctx is done: it could be on its way already. The end of the producer ends that.
	f.producer.client.Produce(context.Background(), r, func(_ *kgo.Record, err error) {
		if err != nil {
			f.faulty.Store(true)
			t.stale.Store(true)
			if isRefusal(err) && !f.careful {
				t.careful.Store(true)
			}
		}
		receipt(f.classify(t.name, err))
	})
	return nil
}

// format is the binding of CloudEvents for Kafka.
var format = wire.NewFormat(wire.Binding{Prefix: "ce_"}) //nolint:gochecknoglobals // a constant

const (
	// batchOverhead and headerOverhead are what Kafka's format takes at most beside the content (record batch v2): a batch with one record, and the
	// lengths of a header's name and value.
	batchOverhead  = 61 + 40
	headerOverhead = 10
)

// sizeOf returns how many bytes a message may take in a batch of its own.
func sizeOf(r *kgo.Record) int {
	size := batchOverhead + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		size += headerOverhead + len(h.Key) + len(h.Value)
	}
	return size
}

// isRefusal reports whether the broker refuses a batch because of one of its messages.
func isRefusal(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge) || errors.Is(err, kerr.InvalidRecord)
}

// classify turns an error that the client reported for one message into an error of one of the classes of package messaging.
func (f *flight) classify(topic string, err error) error {
	switch {
	case err == nil:
		return nil
	case isRefusal(err) && f.careful: // it had a batch of its own
		return messaging.Permanent(fmt.Errorf("kafka: %w", err))
	case isRefusal(err):
		return fmt.Errorf("%w: kafka: it was not stored, because the broker refuses a message of its batch: %w", messaging.ErrUnknown, err)
	}
	if trouble := f.keeper.Trouble("publish", messaging.Subscription{Topic: topic}, err); trouble != nil {
		return trouble
	}
	return fmt.Errorf("%w: kafka: %w", messaging.ErrUnknown, err)
}
