package kafka

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/oncebox/oncebox/messaging"
)

// settled is a topic with one partition and three messages, which a receiver has settled. The receiver is closed.
func settled(t *testing.T, cfg *Config) *Broker {
	t.Helper()
	cfg.Partitions = 1
	b := connect(t, cfg)
	r := subscribe(t, b, billing)
	require.NoError(t, b.Publish(t.Context(), series("order", "a", 3)))
	for range 3 {
		require.NoError(t, r.Ack(t.Context(), receive(t, r)))
	}
	require.NoError(t, r.Close())
	return b
}

// requireSequences receives messages and requires these numbers.
func requireSequences(t *testing.T, r messaging.Receiver, want ...int64) {
	t.Helper()
	var got []int64
	for range want {
		m := receive(t, r)
		got = append(got, m.Sequence)
		require.NoError(t, r.Ack(t.Context(), m))
	}
	require.Equal(t, want, got)
}

func TestOperatorSetsTheOffsets(t *testing.T) {
	t.Parallel()
	operatorSetsTheOffsets(t, configOf(cluster(t).ListenAddrs()...))
}

func operatorSetsTheOffsets(t *testing.T, of *Config) {
	t.Helper()
	fresh := func(log *lines) *Config {
		cfg := configOf(of.URL) // with a prefix of its own
		cfg.SessionTimeout, cfg.Telemetry.Logger = of.SessionTimeout, slog.New(slog.NewTextHandler(log, nil))
		return cfg
	}
	for name, c := range map[string]struct {
		at   int64
		want []int64
		says string
	}{
		"back":         {1, []int64{2, 3}, ""},
		"out of range": {1000, []int64{1, 2, 3}, "from an earlier place"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log lines
			b := settled(t, fresh(&log))
			offsets := kadm.Offsets{}
			offsets.AddOffset(b.cfg.names().FullName("order"), 0, c.at, -1)
			require.NoError(t, admin(t, b).CommitAllOffsets(t.Context(), b.cfg.names().Group(billing), offsets))
			requireSequences(t, subscribe(t, b, billing), c.want...)
			require.Contains(t, log.String(), c.says)
		})
	}
	t.Run("away", func(t *testing.T) {
		t.Parallel()
		var log lines
		b := settled(t, fresh(&log))
		_, err := admin(t, b).DeleteGroup(t.Context(), b.cfg.names().Group(billing))
		require.NoError(t, err)
		requireSequences(t, subscribe(t, b, billing), 1, 2, 3)
		require.Contains(t, log.String(), "its offsets have expired (offsets.retention.minutes)")
	})
}

// The broker has lost messages that were settled, and others have taken their offsets. The next receiver gets these: it begins where the logs part.
func TestOffsetsOfLostMessages(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	b := settled(t, configOf(c.ListenAddrs()...))
	c.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		asked := req.(*kmsg.OffsetForLeaderEpochRequest)
		resp := asked.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		for _, topic := range asked.Topics {
			out := kmsg.NewOffsetForLeaderEpochResponseTopic()
			out.Topic = topic.Topic
			for _, p := range topic.Partitions {
				part := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
				part.Partition, part.LeaderEpoch, part.EndOffset = p.Partition, p.LeaderEpoch, 1
				out.Partitions = append(out.Partitions, part)
			}
			resp.Topics = append(resp.Topics, out)
		}
		return resp, nil, true
	})
	next := series("order", "a", 4)
	require.NoError(t, b.Publish(t.Context(), next[3:]))
	requireSequences(t, subscribe(t, b, billing), 2, 3, 4)
}

// What a transaction of another program has taken back is not received.
func TestAbortedMessages(t *testing.T) {
	t.Parallel()
	abortedMessages(t, configOf(cluster(t).ListenAddrs()...))
}

func abortedMessages(t *testing.T, cfg *Config) {
	t.Helper()
	cfg.Partitions = 1
	b := connect(t, cfg)
	r := subscribe(t, b, billing)
	client, err := kgo.NewClient(kgo.SeedBrokers(b.cfg.hosts()...), kgo.TransactionalID(b.cfg.Prefix),
		kgo.DefaultProduceTopic(b.cfg.names().FullName("order")))
	require.NoError(t, err)
	defer client.Close()
	for text, end := range map[string]kgo.TransactionEndTry{"taken back": kgo.TryAbort, "kept": kgo.TryCommit} {
		require.NoError(t, client.BeginTransaction())
		require.NoError(t, client.ProduceSync(t.Context(), kgo.StringRecord(text)).FirstErr())
		require.NoError(t, client.EndTransaction(t.Context(), end))
	}
	require.NoError(t, b.Publish(t.Context(), series("order", "a", 1)))
	m := receive(t, r)
	require.Equal(t, "kept", string(m.Payload))
	require.NoError(t, r.Ack(t.Context(), m))
	requireSequences(t, r, 1)
}
