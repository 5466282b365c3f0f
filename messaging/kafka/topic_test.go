package kafka

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

// requireTrouble returns the text of a [*messaging.TopicError].
func requireTrouble(t *testing.T, err error) string {
	t.Helper()
	trouble, ok := errors.AsType[*messaging.TopicError](err)
	require.True(t, ok, "not a trouble of the topic: %v", err)
	require.NotErrorIs(t, err, messaging.ErrBrokerDown)
	return trouble.Error()
}

// The key decides the partition as with all clients: murmur2 of the key, without the sign, modulo the partitions.
func TestKeyDecidesThePartition(t *testing.T) {
	t.Parallel()
	to := &topic{partitions: 12}
	// The numbers are those of org.apache.kafka.common.utils.Utils: toPositive(murmur2(key)) % 12.
	for key, hash := range map[string]int32{"21": -973932308, "foobar": -790332482} {
		r := to.record(&event.Envelope{RoutingKey: key})
		require.Equal(t, int32(uint32(hash&0x7fffffff)%12), r.Partition, key)
	}
	seen := map[int32]bool{}
	for range to.partitions {
		seen[to.record(&event.Envelope{}).Partition] = true
	}
	require.Len(t, seen, to.partitions, "messages without a key are not spread")
}

// Partitions are added while a process publishes. It goes on with the partitions that it knows, so each key stays in its order. Another process uses
// the new ones, and receivers find them.
func TestAddedPartitionsMoveNoKeyOfARunningProcess(t *testing.T) {
	t.Parallel()
	addedPartitions(t, configOf(cluster(t).ListenAddrs()...))
}

func addedPartitions(t *testing.T, cfg *Config) {
	t.Helper()
	cfg.Partitions, cfg.metadataAge = 2, 200*time.Millisecond
	b := connect(t, cfg)
	r := subscribe(t, b, billing)
	const keys, perKey = 8, 4
	publish := func(b *Broker, from, to int) {
		t.Helper()
		for k := range keys {
			require.NoError(t, b.Publish(t.Context(), series("order", fmt.Sprint("key-", k), to)[from:]))
		}
	}
	publish(b, 0, perKey/2)
	full := b.cfg.names().FullName("order")
	_, err := admin(t, b).CreatePartitions(t.Context(), 6, full)
	require.NoError(t, err)
	b.producers.renew() // the next ones know all partitions
	b.known("order").stale.Store(true)
	publish(b, perKey/2, perKey)
	last, home := map[string]int64{}, map[string]int32{}
	for range keys * perKey {
		m := receive(t, r)
		p := m.Receipt().(*delivery).record.Partition
		require.Equal(t, last[m.RoutingKey]+1, m.Sequence, "%s is out of order", m.RoutingKey)
		if last[m.RoutingKey] > 0 {
			require.Equal(t, home[m.RoutingKey], p, "%s has moved, and its later messages may overtake the earlier ones", m.RoutingKey)
		}
		last[m.RoutingKey], home[m.RoutingKey] = m.Sequence, p
		require.NoError(t, r.Ack(t.Context(), m))
	}

	publish(connect(t, cfg), 0, 1)
	moved := 0
	for range keys {
		m := receive(t, r)
		if m.Receipt().(*delivery).record.Partition > 1 {
			moved++
		}
		require.NoError(t, r.Ack(t.Context(), m))
	}
	require.Positive(t, moved, "a new process does not use the new partitions")
}

// An operator changes the limit of a topic. It counts from the next message on, without a restart.
func TestTopicsOwnLimitChanges(t *testing.T) {
	t.Parallel()
	b := connect(t, configOf(cluster(t).ListenAddrs()...))
	require.NoError(t, b.Declare(t.Context(), []string{"order"}, nil))
	set(t, b, "order", "max.message.bytes", "20000")
	msgs := series("order", "a", 2)
	msgs[0].Payload = random(30_000)
	failed := failures(t, b.Publish(t.Context(), msgs))
	require.True(t, messaging.IsPermanent(failed[0]), "%v", failed[0])
	require.ErrorContains(t, failed[0], "max.message.bytes")
	require.NoError(t, b.Publish(t.Context(), msgs[1:]))
	set(t, b, "order", "max.message.bytes", "1048576")
	require.NoError(t, b.Publish(t.Context(), msgs[:1]), "the limit was raised")
}

// A topic is deleted and made again between two calls. The process goes on with the new one.
func TestPublishingToATopicThatWasMadeAnew(t *testing.T) {
	t.Parallel()
	cfg := configOf(cluster(t).ListenAddrs()...)
	b := connect(t, cfg)
	require.NoError(t, b.Publish(t.Context(), series("order", "a", 5)))
	_, err := admin(t, b).DeleteTopic(t.Context(), b.cfg.names().FullName("order"))
	require.NoError(t, err)
	once := *cfg
	once.Partitions = 1
	require.NoError(t, connect(t, &once).Declare(t.Context(), []string{"order"}, nil))
	var sent []event.Envelope
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} { // of all former partitions
		sent = append(sent, series("order", key, 3)...)
	}
	eventually(t, func() bool { // the first calls may still find the former topic
		err := b.Publish(t.Context(), sent)
		if err != nil {
			for _, err := range failures(t, err) {
				require.False(t, messaging.IsPermanent(err), "%v", err)
			}
		}
		return err == nil
	}, "the new topic")
	for key, got := range sequences(t, b, "order") {
		require.Equal(t, []int64{1, 2, 3}, got[len(got)-3:], key)
	}
}

// A clock that differs from the broker's is no fault of a message.
func TestTroublesOfATopic(t *testing.T) {
	t.Parallel()
	for says, err := range map[string]*kerr.Error{
		"start the brokers that are away, or lower min.insync.replicas": kerr.NotEnoughReplicas,
		"correct the clock of this machine":                             kerr.InvalidTimestamp,
		"--operation WRITE --topic":                                     kerr.TopicAuthorizationFailed,
	} {
		c := cluster(t)
		b := connect(t, configOf(c.ListenAddrs()...))
		c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			return refusing(req.(*kmsg.ProduceRequest), err.Code), nil, true
		})
		for _, failed := range failures(t, b.Publish(t.Context(), series("order", "a", 3))) {
			require.Contains(t, requireTrouble(t, failed), says)
			require.ErrorIs(t, failed, err)
		}
	}
}

// A producer needs the right to write before its first message. Without it the broker is not away.
func TestProducerThatIsRefused(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	b := connect(t, configOf(c.ListenAddrs()...))
	c.ControlKey(int16(kmsg.InitProducerID), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		return resp, nil, true
	})
	require.Contains(t, requireTrouble(t, failures(t, b.Publish(t.Context(), series("order", "a", 1)))[0]), "--operation WRITE")
}
