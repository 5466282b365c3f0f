//go:build nightly && (linux || darwin)

package kafka

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/devenv"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/diagnosis"
	"github.com/oncebox/oncebox/messaging/messagingtest"
)

// realConfig is that of a broker with its own limits: a session takes at least 6s.
func realConfig(url string) *Config {
	cfg := configOf(url)
	cfg.SessionTimeout = 6 * time.Second
	return cfg
}

func TestRealConformance(t *testing.T) {
	t.Parallel()
	server, err := devenv.Kafka(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	h := conformance(realConfig(server.URL))
	h.Patience = 3 * time.Minute
	messagingtest.Run(t, h)
}

// The broker is killed three times. Nothing is lost, nothing changes its order, and nothing has to be started again.
func TestBrokerIsKilled(t *testing.T) {
	t.Parallel()
	server, err := devenv.Kafka(t.Context(), &devenv.Options{Own: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	h := conformance(realConfig(server.URL))
	h.Patience = 10 * time.Minute
	h.Kill = func(t *testing.T, _ messagingtest.Broker) func() {
		t.Helper()
		require.NoError(t, server.Kill())
		return func() { require.NoError(t, server.Restart(context.Background())) }
	}
	messagingtest.RunKilled(t, h, 3)
}

// Of three brokers the leader of a partition is killed, three times. The others take over. Relay and receivers go on with them.
func TestLeaderIsKilled(t *testing.T) {
	t.Parallel()
	servers, err := devenv.StartKafka(t.Context(), nil, devenv.KafkaSettings{Nodes: 3})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, servers.Stop()) })
	cfg := realConfig(servers.URL)
	cfg.Replication = 3
	h := conformance(cfg)
	h.Patience = 10 * time.Minute
	h.Topic = func(*testing.T) string { return "order" }
	h.Kill = func(t *testing.T, b messagingtest.Broker) func() {
		t.Helper()
		full := b.(*Broker).cfg.names().FullName("order")
		partition := func() kadm.PartitionDetail {
			found, err := admin(t, b.(*Broker)).ListTopics(t.Context(), full)
			require.NoError(t, err)
			return found[full].Partitions[0]
		}
		leader := partition().Leader
		node := servers.Nodes[leader-1]
		require.NoError(t, node.Kill())
		await.True(t, func() bool { now := partition().Leader; return now >= 0 && now != leader }, "a new leader")
		return func() {
			require.NoError(t, node.Restart(context.Background()))
			await.True(t, func() bool { return len(partition().ISR) == 3 }, "the copies of the broker that was killed")
		}
	}
	messagingtest.RunKilled(t, h, 3)

	// Its offsets were committed under several leaders. The next consumer begins behind them.
	b := connect(t, cfg)
	next := series("order", "next", 1)
	require.NoError(t, b.Publish(t.Context(), next))
	require.Equal(t, next[0].ID, receive(t, subscribe(t, b, messaging.Subscription{Topic: "order", Name: "killed"})).ID, "a settled message comes again")
}

// What others do to topics and groups, on a real broker.
func TestRealTopicsAndGroups(t *testing.T) {
	t.Parallel()
	server, err := devenv.Kafka(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	for name, run := range map[string]func(*testing.T, *Config){
		"topic made anew": topicIsMadeAnew, "added partitions": addedPartitions, "aborted messages": abortedMessages, "stranger": strangerInAGroup,
		"stranger of KIP-848": newStrangerInAGroup, "offsets": operatorSetsTheOffsets,
		"limit": brokersLimitBecomesLower, "timestamps": refusedTimestamps,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, realConfig(server.URL))
		})
	}
}

// A consumer of the newer protocol can join a group: the broker turns the group into one of its kind. The doctor reports it.
func newStrangerInAGroup(t *testing.T, cfg *Config) {
	t.Helper()
	b := connect(t, cfg)
	r := subscribe(t, b, billing)
	eventually(t, func() bool { return partitions(r) == 4 }, "the partitions")
	client, err := kgo.NewClient(kgo.SeedBrokers(b.cfg.hosts()...), kgo.ServerSideBalancer(), kgo.ConsumerGroup(b.cfg.names().Group(billing)),
		kgo.ConsumeTopics(b.cfg.names().FullName("order")))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	eventually(t, func() bool {
		found, err := b.Examine(t.Context(), examination())
		require.NoError(t, err)
		return strings.Contains(problems(found), "a program with group.protocol=consumer")
	}, "the finding of the doctor")
	client.Close()
	require.NoError(t, b.Publish(t.Context(), append(series("order", "a", 1), series("order", "b", 1)...)))
	receive(t, r)
	receive(t, r)
}

// A topic takes no message that is older than a moment. That is a trouble of the topic, which the doctor reports, and no message's fault.
func refusedTimestamps(t *testing.T, cfg *Config) {
	t.Helper()
	b := connect(t, cfg)
	require.NoError(t, b.Declare(t.Context(), []string{"order"}, nil))
	for _, setting := range []string{"message.timestamp.after.max.ms", "message.timestamp.before.max.ms"} {
		set(t, b, "order", setting, "0")
		found, err := b.Examine(t.Context(), diagnosis.Examination{Topics: []string{"order"}, Remembers: -1})
		require.NoError(t, err)
		require.Contains(t, problems(found), "warning: topic order: "+setting+" is 0 ms, so events of a machine whose clock differs by more are refused")
	}
	msgs := series("order", "a", 3)
	for _, err := range failures(t, b.Publish(t.Context(), msgs)) {
		require.Contains(t, requireTrouble(t, err), "correct the clock of this machine, or message.timestamp.before.max.ms")
	}
	set(t, b, "order", "message.timestamp.before.max.ms", "3600000")
	eventually(t, func() bool { return b.Publish(t.Context(), msgs) == nil }, "the topic takes messages again")
}
