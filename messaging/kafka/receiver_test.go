package kafka

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/messaging"
)

// soon limits what comes in a second if it comes at all. So a test without it fails with a text, long before the time of all tests is over.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func receive(t *testing.T, r messaging.Receiver) *messaging.Message {
	t.Helper()
	m, err := r.Receive(soon(t))
	require.NoError(t, err, "no message comes")
	return m
}

// eventually waits for ok, as soon does.
func eventually(t *testing.T, ok func() bool, what string) {
	t.Helper()
	ctx := soon(t)
	await.True(t, func() bool {
		require.NoError(t, ctx.Err(), "waited in vain for: %s", what)
		return ok()
	}, "%s", what)
}

// partitions returns how many partitions belong to a receiver.
func partitions(r *receiver) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.accounts)
}

var billing = messaging.Subscription{Topic: "order", Name: "billing"}

// pair has a receiver with a message of each of two partitions in hand, and a second receiver that has just joined.
func pair(t *testing.T, cfg *Config) (b *Broker, first, second *receiver, held []*messaging.Message) {
	t.Helper()
	cfg.Partitions = 2
	b = connect(t, cfg)
	first = subscribe(t, b, billing)
	seen := map[int32]bool{}
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		require.NoError(t, b.Publish(t.Context(), series("order", key, 1)))
	}
	for range 6 {
		m := receive(t, first)
		held = append(held, m)
		seen[m.Receipt().(*delivery).record.Partition] = true
	}
	require.Len(t, seen, 2, "the keys have one partition")
	return b, first, subscribe(t, b, billing), held
}

// A partition moves when the messages of it that are in work are settled, and they do not come again.
func TestPartitionMovesAfterItsMessagesInWork(t *testing.T) {
	t.Parallel()
	cfg := configOf(cluster(t).ListenAddrs()...)
	cfg.HandoverTimeout = time.Hour
	b, first, second, held := pair(t, cfg)
	eventually(t, func() bool {
		first.mu.Lock()
		defer first.mu.Unlock()
		for _, a := range first.accounts {
			if a.ending {
				return true
			}
		}
		return len(first.accounts) < 2
	}, "the first receiver has to give up a partition")
	require.Zero(t, partitions(second), "a partition moved while its messages were in work")
	for _, m := range held {
		require.NoError(t, first.Ack(t.Context(), m))
	}
	eventually(t, func() bool { return partitions(second) == 1 && partitions(first) == 1 }, "each has a partition")
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		require.NoError(t, b.Publish(t.Context(), series("order", key, 1)))
	}
	seen := map[string]bool{}
	for _, m := range held {
		seen[m.ID] = true
	}
	for _, r := range []*receiver{first, second} {
		m := receive(t, r)
		require.False(t, seen[m.ID], "a message that was settled before its partition moved has come again")
	}
}

// After Config.HandoverTimeout a partition moves with its messages in work. They come again at the other receiver, and their late acknowledgements
// do nothing.
func TestPartitionDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	cfg := configOf(cluster(t).ListenAddrs()...)
	cfg.HandoverTimeout = 200 * time.Millisecond
	_, first, second, held := pair(t, cfg)
	again := receive(t, second)
	for n, m := range held {
		if !m.Receipt().(*delivery).gone(first) {
			continue
		}
		if n%2 == 0 {
			require.NoError(t, first.Ack(t.Context(), m), "an acknowledgement that comes too late")
		} else {
			require.NoError(t, first.Redeliver(t.Context(), m))
		}
	}
	first.mu.Lock()
	queued, settled := len(first.queue), first.settled
	first.mu.Unlock()
	require.Zero(t, queued, "a message of a partition that has moved is delivered again here")
	require.Zero(t, settled, "an acknowledgement that comes too late counts")
	ids := map[string]bool{}
	for _, m := range held {
		ids[m.ID] = true
	}
	require.True(t, ids[again.ID], "the message in work did not come again")
	state := again.Receipt().(*delivery)
	second.mu.Lock()
	mark := state.account.watermark()
	second.mu.Unlock()
	require.Equal(t, state.record.Offset, mark.offset, "an acknowledgement of the former receiver counts at the new one")
}

// A consumer that the broker has lost sight of gets no messages, and its acknowledgements do not count.
func TestLostPartitions(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	cfg, l := configOf(c.ListenAddrs()...), newLink()
	cfg.SessionTimeout = 3 * time.Second // then the cluster misses the first receiver
	lost := *cfg
	lost.dial = l.dial
	a, b := connect(t, &lost), connect(t, cfg)
	first := subscribe(t, a, billing)
	require.NoError(t, b.Publish(t.Context(), series("order", "a", 2)))
	m := receive(t, first)
	l.setDown(true)
	eventually(t, func() bool { return first.Connection().IsAway() }, "the receiver reports its connection")
	require.Error(t, first.Connection().Err)
	second := subscribe(t, b, billing)
	again := receive(t, second)
	require.Equal(t, m.ID, again.ID)
	l.setDown(false)
	eventually(t, func() bool { return !first.Connection().IsAway() && m.Receipt().(*delivery).gone(first) }, "the first receiver joins again")
	require.NoError(t, first.Ack(t.Context(), m))
	require.NoError(t, second.Ack(t.Context(), again))
}

func (d *delivery) gone(r *receiver) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return d.account.gone
}

// The broker deletes messages that nobody has received. The receiver goes on, and the log says how many are missing.
func TestDeletedMessagesAreReported(t *testing.T) {
	t.Parallel()
	var log lines
	cfg := configOf(cluster(t).ListenAddrs()...)
	cfg.Partitions, cfg.Telemetry.Logger = 1, slog.New(slog.NewTextHandler(&log, nil))
	b := connect(t, cfg)
	require.NoError(t, b.Declare(t.Context(), nil, []messaging.Subscription{billing}))
	require.NoError(t, b.Publish(t.Context(), series("order", "a", 10)))
	full := b.cfg.names().FullName("order")
	var until kadm.Offsets
	until.AddOffset(full, 0, 7, -1)
	_, err := admin(t, b).DeleteRecords(t.Context(), until)
	require.NoError(t, err)
	found, err := b.Examine(t.Context(), examination())
	require.NoError(t, err)
	require.Contains(t, problems(found), "7 events were deleted before the subscription billing received them")

	m := receive(t, subscribe(t, b, billing))
	require.EqualValues(t, 8, m.Sequence)
	require.Contains(t, log.String(), "messages were deleted before they were consumed")
	require.Contains(t, log.String(), "deleted=7")
}

// lines is a log that may be read while it is written.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A message that is left at the broker comes again at the next consumer, and counts as left until then.
func TestLeftMessage(t *testing.T) {
	t.Parallel()
	cfg := configOf(cluster(t).ListenAddrs()...)
	cfg.Partitions = 1
	b := connect(t, cfg)
	r := subscribe(t, b, billing)
	require.NoError(t, b.Publish(t.Context(), series("order", "a", 4)))
	left, settled := receive(t, r), receive(t, r)
	backlog, err := r.Backlog(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 4, backlog.Messages)
	before := backlog.Settled
	r.Leave(left)
	require.NoError(t, r.Ack(t.Context(), settled))
	backlog, err = r.Backlog(t.Context())
	require.NoError(t, err)
	require.Equal(t, messaging.Backlog{Topic: "order", Messages: 2, Left: 1, Settled: before + 1}, backlog)
	require.NoError(t, r.Close())

	state, err := b.ReadSubscription(t.Context(), "order", "billing")
	require.NoError(t, err)
	require.Equal(t, messaging.SubscriptionState{Messages: 4, Unattended: 1}, state)
	require.Equal(t, left.ID, receive(t, subscribe(t, b, billing)).ID)
	state, err = b.ReadSubscription(t.Context(), "order", "nobody")
	require.NoError(t, err)
	require.True(t, state.Missing)
}

// A message of another program is received with its place as id, and a message that is too large as unreadable.
func TestForeignMessages(t *testing.T) {
	t.Parallel()
	cfg := configOf(cluster(t).ListenAddrs()...)
	cfg.Partitions, cfg.MaxMessageBytes, cfg.MaxReceivedBytes = 1, 8<<10, 10<<10
	b := connect(t, cfg)
	r := subscribe(t, b, billing)
	client, err := kgo.NewClient(kgo.SeedBrokers(b.cfg.hosts()...))
	require.NoError(t, err)
	defer client.Close()
	full := b.cfg.names().FullName("order")
	require.NoError(t, client.ProduceSync(context.Background(),
		&kgo.Record{Topic: full, Key: []byte("k"), Value: []byte("hi"), Headers: []kgo.RecordHeader{{Key: "color", Value: []byte("red")}}},
		&kgo.Record{Topic: full, Value: random(20 << 10)}, &kgo.Record{Topic: full, Key: []byte("k")}).FirstErr())
	m := receive(t, r)
	require.Equal(t, []string{"order@0-0", "k", "hi", "red"}, []string{m.ID, m.RoutingKey, string(m.Payload), m.Metadata["color"]})
	require.Equal(t, full, m.Source)
	m = receive(t, r)
	require.ErrorIs(t, messaging.Unreadable(m), messaging.ErrUnreadable)
	require.Contains(t, m.Metadata[messaging.UnreadableKey], "ONCEBOX_KAFKA_MAX_RECEIVED_BYTES")
	require.Empty(t, receive(t, r).Payload, "a tombstone")
}
