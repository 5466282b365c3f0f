package kafka

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/messaging"
)

// failures returns the errors of a call of Publish by index.
func failures(t *testing.T, err error) map[int]error {
	t.Helper()
	partial, ok := errors.AsType[*messaging.PublishError](err)
	require.True(t, ok, "%v", err)
	return partial.Failed
}

func admin(t *testing.T, b *Broker) *kadm.Client {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.cfg.hosts()...), kgo.MetadataMinAge(10*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return kadm.NewClient(client)
}

func set(t *testing.T, b *Broker, topic, setting, value string) {
	t.Helper()
	change := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: setting, Value: &value}}
	done, err := admin(t, b).AlterTopicConfigs(t.Context(), change, b.cfg.names().FullName(topic))
	require.NoError(t, err)
	_, err = done.On(b.cfg.names().FullName(topic), nil)
	require.NoError(t, err)
}

// sequences returns what the broker has stored of a topic with one partition, by key, in its order.
func sequences(t *testing.T, b *Broker, topic string) map[string][]int64 {
	t.Helper()
	full := b.cfg.names().FullName(topic)
	ends, err := admin(t, b).ListEndOffsets(t.Context(), full)
	require.NoError(t, err)
	end, _ := ends.Lookup(full, 0)
	start := map[string]map[int32]kgo.Offset{full: {0: kgo.NewOffset().AtStart()}}
	client, err := kgo.NewClient(kgo.SeedBrokers(b.cfg.hosts()...), kgo.ConsumePartitions(start))
	require.NoError(t, err)
	defer client.Close()
	ctx, done := await.Context(t.Context(), t, "the messages of topic %s", full)
	defer done()
	found, next := map[string][]int64{}, int64(0)
	for next < end.Offset {
		fetches := client.PollFetches(ctx)
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			for _, h := range r.Headers {
				if h.Key == "ce_sequence" {
					n := int64(0)
					for _, c := range h.Value {
						n = 10*n + int64(c-'0')
					}
					found[string(r.Key)] = append(found[string(r.Key)], n)
				}
			}
			next = r.Offset + 1
		})
	}
	return found
}

// The broker's limit becomes lower than the program knows. It refuses a whole batch. No message in it counts as the fault, until the limit is known.
func TestBrokersLimitBecomesLower(t *testing.T) {
	t.Parallel()
	brokersLimitBecomesLower(t, configOf(cluster(t).ListenAddrs()...))
}

func brokersLimitBecomesLower(t *testing.T, cfg *Config) {
	t.Helper()
	cfg.Partitions = 1
	b := connect(t, cfg)
	require.NoError(t, b.Publish(t.Context(), series("order", "z", 1)))
	set(t, b, "order", "max.message.bytes", "20000")
	requireOneIsFound(t, b)
}

// The broker refuses a message for a reason that the program cannot know. The messages are sent one by one, until it is found.
func TestBrokerRefusesABatchBecauseOfOneMessage(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	cfg := configOf(c.ListenAddrs()...)
	cfg.Partitions = 1
	b := connect(t, cfg)
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		produce := req.(*kmsg.ProduceRequest)
		if len(produce.Topics[0].Partitions[0].Records) > 20_000 {
			return refusing(produce, kerr.InvalidRecord.Code), nil, true
		}
		return nil, nil, false
	})
	require.NoError(t, b.Publish(t.Context(), series("order", "z", 1)))
	requireOneIsFound(t, b)
}

// requireOneIsFound publishes messages of which one is refused for good.
func requireOneIsFound(t *testing.T, b *Broker) {
	t.Helper()
	msgs := append(series("order", "a", 3), series("order", "b", 2)...)
	msgs[1].Payload = random(30_000)
	failed := failures(t, b.Publish(t.Context(), msgs))
	for i, err := range failed {
		require.ErrorIs(t, err, messaging.ErrUnknown, "message %d costs an attempt", i)
	}
	require.Len(t, failed, len(msgs))

	failed = failures(t, b.Publish(t.Context(), msgs))
	require.Len(t, failed, 2)
	require.True(t, messaging.IsPermanent(failed[1]), "%v", failed[1])
	require.ErrorIs(t, failed[2], messaging.ErrBehind)
	require.NoError(t, b.Publish(t.Context(), msgs[2:3]), "the next call sends in batches again")
	require.Equal(t, map[string][]int64{"a": {1, 3}, "b": {1, 2}, "z": {1}}, sequences(t, b, "order"))
}

// The broker refuses the first batch of a call. The later messages of its partition are not stored, although the client gets many of them only after the
// refusal would have come.
func TestNothingIsSentBehindARefusedBatch(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	cfg := configOf(c.ListenAddrs()...)
	cfg.Partitions = 1
	b := connect(t, cfg)
	require.NoError(t, b.Publish(t.Context(), series("order", "z", 1)))
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		return refusing(req.(*kmsg.ProduceRequest), kerr.InvalidRecord.Code), nil, true
	})
	const n = 20_000
	require.Len(t, failures(t, b.Publish(t.Context(), series("order", "a", n))), n)
	require.Equal(t, map[string][]int64{"z": {1}}, sequences(t, b, "order"), "messages behind the refused ones were stored")
}

// A broker forgets a producer after a day without messages. So no producer is used for long.
func TestOldProducersAreNotUsed(t *testing.T) {
	t.Parallel()
	b := connect(t, configOf(cluster(t).ListenAddrs()...))
	require.NoError(t, b.Publish(t.Context(), series("order", "a", 1)))
	first := b.producers.idle[0]
	require.NoError(t, b.Publish(t.Context(), series("order", "a", 1)))
	require.Same(t, first, b.producers.idle[0], "each call has a new producer")
	first.made = first.made.Add(-producerLife)
	require.NoError(t, b.Publish(t.Context(), series("order", "a", 1)))
	require.Empty(t, b.producers.idle, "an old producer is used again")
}

// random returns a payload that does not get smaller by compression.
func random(n int) []byte {
	out := make([]byte, n)
	state := uint32(1)
	for i := range out {
		state = state*1664525 + 1013904223
		out[i] = byte(state >> 24)
	}
	return out
}

// The broker does not answer the first batch. When the deadline is over, the call's producer is ended: what it had in hand is not sent behind its back.
func TestNothingIsSentAfterAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	cfg := configOf(c.ListenAddrs()...)
	cfg.Partitions = 1
	b := connect(t, cfg)
	require.NoError(t, b.Publish(t.Context(), series("order", "z", 1)))
	refused := make(chan struct{}, 1)
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		select {
		case refused <- struct{}{}:
		default: // the test waits for the first one
		}
		return refusing(req.(*kmsg.ProduceRequest), kerr.NotLeaderForPartition.Code), nil, true
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Publish(ctx, series("order", "a", 3)) }()
	await.Receive(t, refused, "the first batch")
	cancel()
	for _, err := range failures(t, await.Receive(t, done, "the end of the call")) {
		require.ErrorIs(t, err, messaging.ErrUnknown)
	}
	b.producers.mu.Lock()
	idle := len(b.producers.idle)
	b.producers.mu.Unlock()
	require.Zero(t, idle, "the producer is used again, and sends its batch again")
}

// refusing answers a request with an error for each partition.
func refusing(req *kmsg.ProduceRequest, code int16) *kmsg.ProduceResponse {
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	for _, t := range req.Topics {
		out := kmsg.NewProduceResponseTopic()
		out.Topic, out.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			part := kmsg.NewProduceResponseTopicPartition()
			part.Partition, part.ErrorCode = p.Partition, code
			out.Partitions = append(out.Partitions, part)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func TestBrokerThatIsAwayGetsNothing(t *testing.T) {
	t.Parallel()
	cfg, l := configOf(cluster(t).ListenAddrs()...), newLink()
	cfg.dial = l.dial
	b := connect(t, cfg)
	require.NoError(t, b.Publish(t.Context(), series("order", "a", 1)))
	l.setDown(true)
	for range 2 { // with the producer that exists, and with a new one
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		for _, err := range failures(t, b.Publish(ctx, series("order", "a", 2))) {
			require.ErrorIs(t, err, messaging.ErrBrokerDown)
		}
		cancel()
	}
	l.setDown(false)
	require.NoError(t, b.Publish(t.Context(), series("order", "a", 1)))
}

func TestDeletedTopicIsNotMadeAgainByPublishing(t *testing.T) {
	t.Parallel()
	b := connect(t, configOf(cluster(t).ListenAddrs()...))
	require.NoError(t, b.Publish(t.Context(), series("order", "a", 1)))
	_, err := admin(t, b).DeleteTopic(t.Context(), b.cfg.names().FullName("order"))
	require.NoError(t, err)
	for range 2 { // at the second time the client has forgotten the topic
		for _, err := range failures(t, b.Publish(t.Context(), series("order", "a", 1))) {
			_, ok := errors.AsType[*messaging.TopicError](err)
			require.True(t, ok, "%v", err)
		}
	}
}

// Leaders of partitions move all the time. What is confirmed is stored, the keys stay in order, and no message counts as refused.
func TestLeadersMove(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	cfg := configOf(c.ListenAddrs()...)
	cfg.Partitions = 1
	b := connect(t, cfg)
	require.NoError(t, b.Declare(t.Context(), []string{"order"}, nil))
	const keys, perKey = 4, 60
	rest := map[string][]event.Envelope{}
	for k := range keys {
		key := string(rune('a' + k))
		rest[key] = series("order", key, perKey)
	}
	for round := 0; len(rest) > 0; round++ {
		require.NoError(t, c.MoveTopicPartition(b.cfg.names().FullName("order"), 0, int32(round%3)))
		var msgs []event.Envelope
		for key, waiting := range rest {
			if n := min(len(waiting), 5); n > 0 {
				msgs = append(msgs, waiting[:n]...)
			} else {
				delete(rest, key)
			}
		}
		err := b.Publish(t.Context(), msgs)
		var failed map[int]error
		if err != nil {
			failed = failures(t, err)
		}
		confirmed := map[string]int{}
		for i := range msgs {
			if failed[i] == nil {
				confirmed[msgs[i].RoutingKey]++
				continue
			}
			require.False(t, messaging.IsPermanent(failed[i]), "%v", failed[i])
		}
		for key, n := range confirmed {
			rest[key] = rest[key][n:]
		}
	}
	for key, got := range sequences(t, b, "order") {
		next := int64(1)
		for _, n := range got {
			require.LessOrEqual(t, n, next, "key %s: %v", key, got)
			next = max(next, n+1)
		}
		require.EqualValues(t, perKey+1, next, "key %s", key)
	}
}
