package kafka

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/messaging"
)

// stranger consumes in a group as other programs do.
func stranger(t *testing.T, b *Broker, group string) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.cfg.hosts()...), kgo.ClientID("stranger"), kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(b.cfg.names().FullName("order")))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

// Another program consumes in the group of a subscription. It would get messages that the service never sees.
func TestStrangerInAGroup(t *testing.T) {
	t.Parallel()
	strangerInAGroup(t, configOf(cluster(t).ListenAddrs()...))
}

func strangerInAGroup(t *testing.T, cfg *Config) {
	t.Helper()
	b := connect(t, cfg)
	require.NoError(t, b.Declare(t.Context(), []string{"order"}, nil))
	group := b.cfg.names().Group(billing)
	client := stranger(t, b, group)
	eventually(t, func() bool {
		found, err := admin(t, b).DescribeGroups(t.Context(), group)
		return err == nil && found[group].Protocol != ""
	}, "the stranger is in the group")
	found, err := b.Examine(t.Context(), examination())
	require.NoError(t, err)
	require.Contains(t, problems(found), `another program consumes in the group of the subscription billing, and gets messages of it: the client "stranger"`)
	_, err = b.Subscribe(t.Context(), billing)
	says := requireTrouble(t, err)
	require.Contains(t, says, `the client "stranger" at`)
	require.Contains(t, says, "stop it, or give it a group of its own")
	requireTrouble(t, b.Declare(t.Context(), nil, []messaging.Subscription{billing}))
	client.Close()

	r := subscribe(t, b, billing)
	eventually(t, func() bool { return partitions(r) == 4 }, "the partitions")
	late := stranger(t, b, group)
	ctx := soon(t)
	require.ErrorIs(t, late.PollFetches(ctx).Err(), kerr.InconsistentGroupProtocol, "another program may join")
	require.NoError(t, b.Publish(t.Context(), series("order", "a", 1)))
	receive(t, r)
}

func TestSessionThatTheBrokerRefuses(t *testing.T) {
	t.Parallel()
	cfg := configOf(cluster(t).ListenAddrs()...)
	cfg.SessionTimeout = time.Hour
	ctx := soon(t)
	_, err := subscribe(t, connect(t, cfg), billing).Receive(ctx)
	require.Contains(t, requireTrouble(t, err), "ONCEBOX_KAFKA_SESSION_TIMEOUT")
}

// A poll that is under way while a partition goes may bring messages of it. The partition goes after these are in the queue, or dropped: else they could
// come into the account of its return.
func TestPartitionGoesAfterThePoll(t *testing.T) {
	t.Parallel()
	b := connect(t, configOf(cluster(t).ListenAddrs()...))
	r := subscribe(t, b, billing)
	eventually(t, func() bool { return partitions(r) == 4 }, "the partitions")
	for n, gone := range []func(context.Context, *kgo.Client, map[string][]int32){r.revoked, r.lost} {
		interrupted, returned := make(chan struct{}), make(chan struct{})
		p := &poll{cancel: func() { close(interrupted) }, done: make(chan struct{})}
		r.mu.Lock()
		r.poll = p
		r.mu.Unlock()
		go func() {
			gone(context.Background(), r.client, map[string][]int32{r.full: {int32(n)}})
			close(returned)
		}()
		select {
		case <-interrupted:
		case <-returned:
			require.Fail(t, "the partition has gone before the poll has ended")
		}
		require.Equal(t, 4-n, partitions(r), "the partition has gone before the poll has ended")
		r.mu.Lock()
		r.poll = nil
		r.mu.Unlock()
		close(p.done)
		await.Receive(t, returned, "the end of the partition")
		require.Equal(t, 3-n, partitions(r))
	}
}
