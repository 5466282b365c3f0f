package kafka

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/diagnosis"
)

func examination() diagnosis.Examination { return diagnosis.Examination{Remembers: -1} }

// problems returns the findings, a line each.
func problems(found []diagnosis.Finding) string {
	var b strings.Builder
	for _, f := range found {
		b.WriteString(string(f.Severity) + ": " + f.Problem + ": " + f.Mend + "\n")
	}
	return b.String()
}

func TestCheckMakesNoTopics(t *testing.T) {
	t.Parallel()
	cfg := configOf(cluster(t).ListenAddrs()...)
	cfg.Declare, cfg.Partitions, cfg.Replication, cfg.Retention = Check, 6, 3, time.Hour
	b := connect(t, cfg)
	requireCommand := func(err error) {
		t.Helper()
		found, ok := errors.AsType[*messaging.TopicError](err)
		require.True(t, ok, "%v", err)
		require.ErrorContains(t, found, "--create --topic "+b.cfg.Prefix+"order --partitions 6 --replication-factor 3 --config retention.ms=3600000")
	}
	requireCommand(b.Declare(t.Context(), []string{"order"}, nil))
	_, err := b.Subscribe(t.Context(), billing)
	requireCommand(err)
	requireCommand(failures(t, b.Publish(t.Context(), series("order", "a", 1)))[0])
	found, err := b.Examine(t.Context(), diagnosis.Examination{Topics: []string{"order"}})
	require.NoError(t, err)
	require.Contains(t, problems(found), "topic order: it does not exist: make it with: kafka-topics.sh")
	cfg.Topics = []string{"order"}
	_, err = Connect(t.Context(), cfg)
	requireCommand(err)
}

func TestTopicIsMadeAsConfigured(t *testing.T) {
	t.Parallel()
	cfg := configOf(cluster(t).ListenAddrs()...)
	cfg.Partitions, cfg.Replication, cfg.Retention, cfg.Topics = 6, 3, 100*time.Hour, []string{"order"}
	b := connect(t, cfg)
	full := b.cfg.names().FullName("order")
	topics, err := admin(t, b).ListTopics(t.Context(), full)
	require.NoError(t, err)
	require.Len(t, topics[full].Partitions, 6)
	require.Equal(t, 3, topics[full].Partitions.NumReplicas())
	kept, err := b.Retention(t.Context(), "order")
	require.NoError(t, err)
	require.Equal(t, 100*time.Hour, kept)
	set(t, b, "order", "retention.ms", "-1")
	kept, err = b.Retention(t.Context(), "order")
	require.NoError(t, err)
	require.EqualValues(t, -1, kept)
}

// Topics with settings that lose events, or refuse all, are errors at the start, or when somebody publishes to them for the first time: a service does
// not list its topics. Each error names the setting, both values and the command.
func TestUnusableTopics(t *testing.T) {
	t.Parallel()
	cfg := configOf(cluster(t).ListenAddrs()...)
	b := connect(t, cfg)
	require.NoError(t, b.Declare(t.Context(), []string{"order", "invoice"}, nil))
	set(t, b, "order", "cleanup.policy", "compact")
	set(t, b, "invoice", "min.insync.replicas", "2")
	for topic, command := range map[string]string{"order": "cleanup.policy=delete", "invoice": "min.insync.replicas=1"} {
		err := b.Declare(t.Context(), []string{topic}, nil)
		found, ok := errors.AsType[*messaging.TopicError](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, topic, found.Topic)
		require.ErrorContains(t, err, "kafka-configs.sh")
		require.ErrorContains(t, err, "--add-config "+command)
		for _, err := range failures(t, b.Publish(t.Context(), series(topic, "a", 2))) { // of a service that does not declare it
			require.Contains(t, requireTrouble(t, err), "--add-config "+command)
		}
	}
	require.NoError(t, b.Declare(t.Context(), nil, []messaging.Subscription{billing}), "a topic of others may be compacted")
	set(t, b, "order", "cleanup.policy", "delete")
	require.NoError(t, b.Publish(t.Context(), series("order", "a", 1)))
}

func TestExamineFindsTheSettingsThatHurt(t *testing.T) {
	t.Parallel()
	cfg := configOf(cluster(t).ListenAddrs()...)
	cfg.Replication = 3
	b := connect(t, cfg)
	require.NoError(t, b.Declare(t.Context(), []string{"sound"}, []messaging.Subscription{billing}))
	set(t, b, "sound", "min.insync.replicas", "2")
	for setting, c := range map[string]struct{ value, says string }{
		"min.insync.replicas": {"1", "warning: topic order: min.insync.replicas is 1, so a confirmed event may have one copy only"},
		"retention.ms":        {"3600000", "warning: topic order: retention.ms is 1h0m0s, so a subscription that stands still for longer loses events"},
		"retention.bytes":     {"1000000", "warning: topic order: retention.bytes is 1000000, so a partition with more bytes loses events"},
		"max.message.bytes":   {"20000", "warning: topic order: max.message.bytes is 20000, and ONCEBOX_KAFKA_MAX_MESSAGE_BYTES is 1048576"},
		"cleanup.policy":      {"compact", "problem: topic order: cleanup.policy is compact"},
	} {
		set(t, b, "order", "min.insync.replicas", "2")
		set(t, b, "order", "cleanup.policy", "delete")
		set(t, b, "order", setting, c.value)
		found, err := b.Examine(t.Context(), examination())
		require.NoError(t, err)
		require.Contains(t, problems(found), c.says, setting)
		require.Contains(t, problems(found), "kafka-configs.sh --bootstrap-server", setting)
		require.NotContains(t, problems(found), "topic sound", setting)
	}
	for n, says := range map[string]string{"3": "nothing can be published while one broker is away", "4": "the broker refuses every message"} {
		set(t, b, "order", "min.insync.replicas", n)
		found, err := b.Examine(t.Context(), diagnosis.Examination{Topics: []string{"order"}, Remembers: -1})
		require.NoError(t, err)
		require.Contains(t, problems(found), says)
	}
}

func TestExamineOfABrokerThatIsAway(t *testing.T) {
	t.Parallel()
	cfg := configOf("127.0.0.1:1")
	cfg.ConnectTimeout, cfg.OperationTimeout = time.Second, time.Second
	b := connect(t, cfg)
	found, err := b.Examine(t.Context(), examination())
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, diagnosis.Connection, found[0].Check)
	require.Contains(t, found[0].Mend, "ONCEBOX_KAFKA_URL")
}

func TestAnotherDatabaseOfAService(t *testing.T) {
	t.Parallel()
	b := connect(t, configOf(cluster(t).ListenAddrs()...))
	s := messaging.Subscription{Topic: "order", Name: "billing", Source: "shop", Installation: "one"}
	require.NoError(t, b.Declare(t.Context(), nil, []messaging.Subscription{s}))
	s.Installation = "two"
	err := b.Declare(t.Context(), []string{"other"}, []messaging.Subscription{s})
	found, ok := errors.AsType[*messaging.InstallationError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, "one", found.Owner)
	require.True(t, messaging.IsPermanent(err))
	require.Contains(t, found.Mend, "--reset-offsets --to-current")
	topics, err := admin(t, b).ListTopics(t.Context(), b.cfg.names().FullName("other"))
	require.NoError(t, err)
	require.ErrorIs(t, topics.Error(), kerr.UnknownTopicOrPartition, "a start that was refused has made a topic")

	// The command commits the offsets without metadata.
	full := b.cfg.names().FullName("order")
	offsets := kadm.Offsets{}
	for p := range int32(4) {
		offsets.AddOffset(full, p, 0, -1)
	}
	require.NoError(t, admin(t, b).CommitAllOffsets(t.Context(), b.cfg.names().Group(s), offsets))
	require.NoError(t, b.Declare(t.Context(), nil, []messaging.Subscription{s}))
}

// A group with consumers takes no commit from outside. The mark of the owner is there when Subscribe returns.
func TestOwnerOfASubscriptionInUse(t *testing.T) {
	t.Parallel()
	b := connect(t, configOf(cluster(t).ListenAddrs()...))
	r := subscribe(t, b, billing)
	eventually(t, func() bool { return partitions(r) == 4 }, "the partitions")
	owned := billing
	owned.Source = "shop"
	subscribe(t, b, owned)
	owned.Source = "bank"
	err := b.Declare(t.Context(), nil, []messaging.Subscription{owned})
	found, ok := errors.AsType[*messaging.SourceError](err)
	require.True(t, ok, "another service may use the subscription: %v", err)
	require.Equal(t, "shop", found.Owner)
}

func TestNames(t *testing.T) {
	t.Parallel()
	b := &Broker{cfg: Config{Prefix: "p."}}
	require.NoError(t, b.ValidateTopic(strings.Repeat("a", 247)))
	require.ErrorIs(t, b.ValidateTopic(strings.Repeat("a", 248)), event.ErrInvalid)
	require.ErrorIs(t, b.ValidateTopic(strings.Repeat(" ", 50)+"a"), event.ErrInvalid)
	group := func(topic, name string) string {
		return b.cfg.names().Group(messaging.Subscription{Topic: topic, Name: name})
	}
	require.NotEqual(t, group("a.b", "c"), group("a", "b.c"))
	require.NotEqual(t, group("a:b", "c"), group("a", "b:c"))
}

func TestConnectWaitsInTheBackground(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	cfg, l := configOf(c.ListenAddrs()...), newLink()
	l.setDown(true)
	cfg.dial, cfg.ConnectTimeout = l.dial, time.Second
	b := connect(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, failures(t, b.Publish(ctx, series("order", "a", 1)))[0], messaging.ErrBrokerDown)
	_, err := b.Subscribe(ctx, billing)
	require.ErrorIs(t, err, messaging.ErrBrokerDown)
	l.setDown(false)
	require.NoError(t, b.Publish(t.Context(), series("order", "a", 1)))

	required := *cfg
	required.Required, required.ConnectTimeout = true, 500*time.Millisecond
	l.setDown(true)
	_, err = Connect(t.Context(), &required)
	require.ErrorIs(t, err, messaging.ErrBrokerDown)
	require.ErrorContains(t, err, "ONCEBOX_KAFKA_URL")
	l.setDown(false)
}
