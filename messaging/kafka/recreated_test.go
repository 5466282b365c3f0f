package kafka

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/messaging"
)

func TestTopicIsMadeAnew(t *testing.T) {
	t.Parallel()
	topicIsMadeAnew(t, configOf(cluster(t).ListenAddrs()...))
}

// topicIsMadeAnew deletes a topic under a receiver that has settled some messages, and makes it again. The receiver, or the next one if it ends, gets
// the messages of the new topic from the first one on.
func topicIsMadeAnew(t *testing.T, cfg *Config) {
	t.Helper()
	cfg.Partitions = 1
	b := connect(t, cfg)
	r := subscribe(t, b, billing)
	require.NoError(t, b.Publish(t.Context(), series("order", "a", 3)))
	for range 3 {
		require.NoError(t, r.Ack(t.Context(), receive(t, r)))
	}
	full := b.cfg.names().FullName("order")
	eventually(t, func() bool {
		state, err := b.ReadSubscription(t.Context(), "order", "billing")
		return err == nil && state.Settled == 3
	}, "the commit")
	_, err := admin(t, b).DeleteTopic(t.Context(), full)
	require.NoError(t, err)
	eventually(t, func() bool {
		topics, err := admin(t, b).ListTopics(t.Context(), full)
		return err == nil && topics[full].Err != nil
	}, "the end of the topic")

	other := connect(t, cfg)
	sent := series("order", "b", 6)
	require.NoError(t, other.Publish(t.Context(), sent))
	ctx := soon(t)
	var consumer messaging.Receiver = r
	for n := 0; n < len(sent); {
		m, err := consumer.Receive(ctx)
		if err != nil {
			require.NoError(t, ctx.Err())
			require.NoError(t, consumer.Close())
			consumer = subscribe(t, other, billing)
			continue
		}
		require.Equal(t, sent[n].ID, m.ID, "a message of the new topic was skipped")
		require.NoError(t, consumer.Ack(ctx, m))
		n++
	}
}
