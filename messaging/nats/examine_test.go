package nats

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/diagnosis"
	own "github.com/oncebox/oncebox/messaging/nats/natsserver"
)

func examine(t *testing.T, b *Broker, topics ...string) []diagnosis.Finding {
	t.Helper()
	found, err := b.Examine(t.Context(), diagnosis.Examination{Topics: topics})
	require.NoError(t, err)
	return found
}

func TestSoundTopicHasNoFindings(t *testing.T) {
	t.Parallel()
	b := connect(t, config(serve(t).URL()))
	require.Empty(t, examine(t, b), "there is no topic")
	found := examine(t, b, "none")
	require.Len(t, found, 1)
	require.Equal(t, "topic none: it does not exist: there is no stream oncebox-none", found[0].Problem)
	r := subscribe(t, b, messaging.Subscription{Name: "billing", Source: "shop"})
	require.NoError(t, b.Publish(t.Context(), events(1, 2)))
	require.Equal(t, numbers(1, 2), receive(t, r, 2, true))
	require.Empty(t, examine(t, b))
}

func TestHarmfulSettingsAreFound(t *testing.T) {
	t.Parallel()
	b := connect(t, config(serve(t).URL()))
	for wanted, change := range map[string]func(*jetstream.StreamConfig){
		"throws away the oldest messages":  func(c *jetstream.StreamConfig) { c.Discard, c.MaxBytes = jetstream.DiscardOld, 1<<20 },
		"recognizes copies for 20s":        func(c *jetstream.StreamConfig) { c.Duplicates = 20 * time.Second },
		"is in the memory of the server":   func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage },
		"without acknowledgements nobody":  func(c *jetstream.StreamConfig) { c.NoAck = true },
		"messages are dropped that nobody": func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 1 },
	} {
		topic := wanted[:10]
		c := jetstream.StreamConfig{
			Name: b.Stream(topic), Subjects: b.Subjects(topic, 1), Discard: jetstream.DiscardNew, Duplicates: time.Minute,
			Metadata: map[string]string{"oncebox-partitions": "1"},
		}
		change(&c)
		_, err := b.session.JS.CreateStream(t.Context(), c)
		require.NoError(t, err)
		found := examine(t, b, topic)
		require.Len(t, found, 1, "%v", found)
		require.Contains(t, found[0].Problem, wanted)
		require.NotEmpty(t, found[0].Mend)
	}
	found, err := b.Examine(t.Context(), diagnosis.Examination{})
	require.NoError(t, err)
	require.Len(t, found, 5, "the streams are listed")
}

func TestHarmfulConsumersAreFound(t *testing.T) {
	t.Parallel()
	b := connect(t, config(serve(t).URL()))
	r := subscribe(t, b, messaging.Subscription{Name: "billing"})
	require.NoError(t, r.Close())
	require.NoError(t, b.Publish(t.Context(), events(1, 2)))
	await.True(t, func() bool { // the server tells its consumers of a message after it has confirmed it
		found := examine(t, b)
		return len(found) == 1 && strings.Contains(found[0].Problem, "billing has 2 messages that wait, and no consumer")
	}, "the messages that wait are found")

	var c jetstream.Consumer
	for p := range 8 { // the partition that has the messages
		one, err := b.session.Consumer(t.Context(), "oncebox-order", b.Consumer("billing", p))
		require.NoError(t, err)
		if one.CachedInfo().NumPending > 0 {
			c = one
		}
	}
	is := c.CachedInfo().Config
	is.MaxDeliver, is.InactiveThreshold, is.MaxAckPending = 5, time.Hour, 1
	_, err := b.session.JS.UpdateConsumer(t.Context(), "oncebox-order", is)
	require.NoError(t, err)
	batch, err := c.Fetch(1, jetstream.FetchPriorityGroup("oncebox"), jetstream.FetchMaxWait(5*time.Second))
	require.NoError(t, err)
	for range batch.Messages() { // it is not settled
	}
	_, err = b.session.JS.PauseConsumer(t.Context(), "oncebox-order", is.Durable, time.Now().Add(time.Hour))
	require.NoError(t, err)
	texts := ""
	for _, f := range examine(t, b) {
		texts += f.Problem + "\n"
	}
	require.Contains(t, texts, "at most 5 times")
	require.Contains(t, texts, "deletes "+is.Durable)
	require.Contains(t, texts, is.Durable+" is paused for")
	require.Contains(t, texts, "gets no further message, because 1 are not settled")
}

// A message that waits for more than half of the time that its stream keeps it will be lost.
func TestMessagesThatAreAboutToBeLostAreFound(t *testing.T) {
	t.Parallel()
	b := connect(t, config(serve(t).URL()))
	s := messaging.Subscription{Topic: "order", Name: "billing"}
	require.NoError(t, b.Declare(t.Context(), nil, []messaging.Subscription{s}))
	stream, err := b.session.Stream(t.Context(), "oncebox-order")
	require.NoError(t, err)
	c := stream.CachedInfo().Config
	c.MaxAge, c.Duplicates = 5*time.Second, 5*time.Second
	_, err = b.session.JS.UpdateStream(t.Context(), c)
	require.NoError(t, err)
	await.True(t, func() bool {
		if stored(t, b) == 0 { // the machine was so slow that it is gone already
			require.NoError(t, b.Publish(t.Context(), []event.Envelope{{ID: uuid.NewString(), Topic: "order"}}))
		}
		return slices.ContainsFunc(examine(t, b), func(f diagnosis.Finding) bool { return strings.Contains(f.Problem, "it will be lost") })
	}, "the finding")
}

func TestServerThatIsAwayIsAFinding(t *testing.T) {
	t.Parallel()
	server, err := own.Start(&own.Config{Dir: t.TempDir()})
	require.NoError(t, err)
	cfg := config(server.URL())
	cfg.Required, cfg.OperationTimeout = false, 200*time.Millisecond
	server.Stop()
	found := examine(t, connect(t, cfg))
	require.Len(t, found, 1)
	require.Equal(t, diagnosis.Connection, found[0].Check)
}
