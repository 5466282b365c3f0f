package pulsar

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
)

func failures(t *testing.T, err error) map[int]error {
	t.Helper()
	if err == nil {
		return nil
	}
	partial, ok := errors.AsType[*messaging.PublishError](err)
	require.True(t, ok, "%v", err)
	return partial.Failed
}

func requireTopicError(t *testing.T, err error, topic string) {
	t.Helper()
	trouble, ok := errors.AsType[*messaging.TopicError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, topic, trouble.Topic)
}

// forbidAutoCreation forbids the broker to make topics by itself.
func forbidAutoCreation(t *testing.T, n *pulsartest.Namespace) {
	t.Helper()
	require.NoError(t, n.Admin(t.Context(), http.MethodPost, "/namespaces/"+n.Name+"/autoTopicCreation", `{"allowAutoTopicCreation":false}`))
}

func TestPublishToATopicInTrouble(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	forbidAutoCreation(t, n)
	b := connect(t, declared(n, "good", "s"))
	failed := failures(t, b.Publish(t.Context(), []event.Envelope{
		envelope("missing", "a", 1), envelope("good", "a", 1), envelope("missing", "b", 1), envelope("a/b", "a", 1),
	}))
	require.Len(t, failed, 3)
	requireTopicError(t, failed[0], "missing")
	requireTopicError(t, failed[2], "missing")
	require.True(t, messaging.IsPermanent(failed[3]))

	// It heals without a restart.
	require.NoError(t, b.Declare(t.Context(), []string{"missing"}, nil))
	require.NoError(t, b.Publish(t.Context(), []event.Envelope{envelope("missing", "a", 1)}))

	cfg := config(n)
	cfg.Namespace = "nowhere"
	failed = failures(t, connect(t, cfg).Publish(t.Context(), []event.Envelope{envelope("order", "a", 1)}))
	requireTopicError(t, failed[0], "order")
}

// A call may be larger than what the client queues for a partition.
func TestPublishMoreThanTheQueueHolds(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	b := connect(t, declared(n, "order", "s"))
	sent := series("order", 1, 5000)
	require.NoError(t, b.Publish(patient(t), sent))
	r, err := b.Subscribe(t.Context(), messaging.Subscription{Topic: "order", Name: "s"})
	require.NoError(t, err)
	for i, m := range receiveAll(t, r, len(sent)) {
		require.EqualValues(t, i+1, m.Sequence)
	}
}

// The broker's limit is lower than the configured one. A payload above it, and one just below it that only the broker
// can find too large, are given up within two calls, never at the expense of others, and nothing of the key is stored before.
func TestPublishOverTheBrokersLimit(t *testing.T) {
	t.Parallel()
	const brokersLimit = 5 << 20
	for name, payload := range map[string]int{"above": brokersLimit + 1, "just below": brokersLimit - 20} {
		for mode, unbatched := range map[string]bool{" batched": false, " unbatched": true} {
			t.Run(name+mode, func(t *testing.T) {
				cfg := declared(pulsartest.Open(t), "order", "s")
				cfg.MaxMessageBytes, cfg.DisableBatching, cfg.Partitions = 2*brokersLimit, unbatched, 1
				b := connect(t, cfg)
				large := envelope("order", "large", 1)
				large.Payload = make([]byte, payload)
				waiting := []event.Envelope{
					envelope("order", "a", 1), large, envelope("order", "large", 2), envelope("order", "a", 2), envelope("order", "b", 1),
				}
				dead := map[string]bool{}
				for range 2 {
					failed := failures(t, b.Publish(patient(t), waiting))
					var next []event.Envelope
					for i, err := range failed {
						if messaging.IsPermanent(err) {
							require.Equal(t, large.ID, waiting[i].ID)
							dead[waiting[i].ID] = true
						} else if !dead[waiting[i].ID] {
							next = append(next, waiting[i])
						}
					}
					slices.SortFunc(next, func(a, b event.Envelope) int {
						return slices.IndexFunc(waiting, same(a)) - slices.IndexFunc(waiting, same(b))
					})
					waiting = next
				}
				require.True(t, dead[large.ID])
				require.NoError(t, b.Publish(t.Context(), waiting), "what was behind it")
				r, err := b.Subscribe(t.Context(), messaging.Subscription{Topic: "order", Name: "s"})
				require.NoError(t, err)
				require.NoError(t, b.Publish(t.Context(), []event.Envelope{envelope("order", "end", 1)}))
				stored := map[string][]int64{}
				for stored["end"] == nil {
					m := receiveAll(t, r, 1)[0]
					stored[m.RoutingKey] = append(stored[m.RoutingKey], m.Sequence)
				}
				require.Equal(t, []int64{2}, stored["large"], "once, and not while its predecessor was undecided")
				require.Equal(t, []int64{1, 2}, slices.Compact(stored["a"]))
				require.Equal(t, []int64{1}, slices.Compact(stored["b"]))
			})
		}
	}
}

func same(a event.Envelope) func(event.Envelope) bool {
	return func(b event.Envelope) bool { return a.ID == b.ID }
}

func TestPublishRefusesByTheSizeOfProperties(t *testing.T) {
	t.Parallel()
	cfg := declared(pulsartest.Open(t), "order", "s")
	cfg.MaxMessageBytes = 64 << 10
	b := connect(t, cfg)
	large := envelope("order", "a", 1)
	large.Metadata = event.Metadata{"m": string(make([]byte, 40<<10))}
	failed := failures(t, b.Publish(t.Context(), []event.Envelope{large, envelope("order", "a", 2), envelope("order", "b", 1)}))
	require.True(t, messaging.IsPermanent(failed[0]))
	require.ErrorContains(t, failed[0], "Config.MaxMessageBytes")
	require.ErrorIs(t, failed[1], messaging.ErrBehind)
	require.Len(t, failed, 2)
}

func batchSizes(t *testing.T, b *Broker, s messaging.Subscription, n int) int {
	t.Helper()
	r, err := b.Subscribe(t.Context(), s)
	require.NoError(t, err)
	largest := 0
	for _, m := range receiveAll(t, r, n) {
		largest = max(largest, int(m.Receipt().(*receipt).message.ID().BatchSize()))
	}
	require.NoError(t, r.Close())
	return largest
}

// Key_Shared consumers lose the order of keys that share a batch.
func TestPublishDoesNotBatchForKeyShared(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	plain := messaging.Subscription{Topic: "plain", Name: "s"}
	cfg := config(n)
	cfg.Subscriptions = []messaging.Subscription{plain, {Topic: "declared", Name: "s", Type: messaging.KeyShared}, {Topic: "joined", Name: "s"}}
	b := connect(t, cfg)
	require.NoError(t, b.Publish(t.Context(), series("plain", 20, 5)))
	require.Greater(t, batchSizes(t, b, plain, 100), 1, "others are sent in batches")

	require.NoError(t, b.Publish(t.Context(), series("declared", 20, 5)))
	require.LessOrEqual(t, batchSizes(t, b, cfg.Subscriptions[1], 100), 1)

	// Batches are sent at first, until a consumer in this process subscribes.
	require.NoError(t, b.Publish(t.Context(), series("joined", 20, 5)))
	late := messaging.Subscription{Topic: "joined", Name: "late", Type: messaging.KeyShared}
	r, err := b.Subscribe(t.Context(), late)
	require.NoError(t, err)
	receiveAll(t, r, 100)
	more := series("joined", 20, 10)[100:]
	require.NoError(t, b.Publish(t.Context(), more))
	for _, m := range receiveAll(t, r, 100) {
		require.LessOrEqual(t, m.Receipt().(*receipt).message.ID().BatchSize(), int32(1))
	}

	// Another process sees it by the consumer.
	other := connect(t, config(n))
	require.NoError(t, other.Publish(t.Context(), series("joined", 20, 11)[200:]))
	for _, m := range receiveAll(t, r, 20) {
		require.LessOrEqual(t, m.Receipt().(*receipt).message.ID().BatchSize(), int32(1))
	}
}

// A process that only publishes, and begins before any consumer has come, does not learn it from the broker's statistics.
func TestKeySharedIsKnownBeforeItsFirstConsumer(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	s := messaging.Subscription{Topic: "order", Name: "s", Type: messaging.KeyShared}
	cfg := config(n)
	cfg.Subscriptions = []messaging.Subscription{s}
	consumer := connect(t, cfg)
	publisher := connect(t, config(n))
	require.NoError(t, publisher.Publish(t.Context(), series("order", 20, 5)))
	require.LessOrEqual(t, batchSizes(t, consumer, s, 100), 1)
}

// Without the admin API the program still knows its own subscriptions.
func TestKeySharedWithoutAdminGetsNoBatches(t *testing.T) {
	t.Parallel()
	forbidden := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"reason":"no"}`))
	}))
	t.Cleanup(forbidden.Close)
	cfg := config(pulsartest.Open(t))
	cfg.AdminURL = forbidden.URL
	b := connect(t, cfg)
	s := messaging.Subscription{Topic: "order", Name: "s", Type: messaging.KeyShared}
	r, err := b.Subscribe(t.Context(), s)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	require.NoError(t, b.Publish(t.Context(), series("order", 20, 5)))
	require.LessOrEqual(t, batchSizes(t, b, s, 100), 1)
}

func TestKeySharedNoticesBatches(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	var log logbook.Book
	cfg := declared(n, "order", "s")
	cfg.Telemetry.Logger = log.Logger()
	b := connect(t, cfg)
	require.NoError(t, b.Publish(t.Context(), series("order", 20, 5)))
	batchSizes(t, b, messaging.Subscription{Topic: "order", Name: "s", Type: messaging.KeyShared}, 100)
	require.Equal(t, 1, log.Count("ONCEBOX_PULSAR_DISABLE_BATCHING"))
}

// Messages without a subscription may be deleted at any moment. The log says so once.
func TestPublishToATopicThatNobodyWatches(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	var log logbook.Book
	reader := sdkmetric.NewManualReader()
	cfg := declared(n, "watched", "s")
	cfg.Telemetry.Logger, cfg.Telemetry.MeterProvider = log.Logger(), sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	b := connect(t, cfg)
	const warning = "neither a subscription nor retention"
	for range 2 {
		require.NoError(t, b.Publish(t.Context(), []event.Envelope{envelope("watched", "a", 1)}))
	}
	require.Zero(t, log.Count(warning))
	for range 2 {
		require.NoError(t, b.Publish(t.Context(), []event.Envelope{envelope("unwatched", "a", 1), envelope("unwatched", "b", 1)}))
	}
	require.Equal(t, 1, log.Count(warning))

	require.Equal(t, map[string]int64{
		"oncebox.broker.published watched ok": 2, "oncebox.broker.published unwatched ok": 4, "oncebox.broker.unwatched_topics unwatched ": 1,
	}, counters(t, reader))

	n.Retain(t)
	require.NoError(t, connect(t, cfg).Publish(t.Context(), []event.Envelope{envelope("kept", "a", 1)}))
	require.Equal(t, 1, log.Count(warning))
}

// The broker makes a deleted topic again for the next message, without its subscriptions, and confirms the message.
func TestSubscriptionThatIsGone(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	var log logbook.Book
	cfg := declared(n, "order", "s")
	cfg.Telemetry.Logger, cfg.AudienceInterval = log.Logger(), time.Nanosecond
	b := connect(t, cfg)
	said := func(what string) {
		t.Helper()
		await.True(t, func() bool {
			return b.Publish(t.Context(), []event.Envelope{envelope("order", "a", 1)}) == nil && log.Count(what) == 1
		}, "the log says: %s", what)
	}
	require.NoError(t, b.Publish(t.Context(), []event.Envelope{envelope("order", "a", 1)}))
	require.NoError(t, n.Admin(t.Context(), http.MethodDelete, "/persistent/"+n.Name+"/order/subscription/s?force=true", ""))
	said("subscriptions of a topic are missing")
	require.NoError(t, b.Declare(t.Context(), nil, cfg.Subscriptions))
	said("exist again")
	require.Equal(t, 1, log.Count("subscriptions of a topic are missing"))
}

func counters(t *testing.T, reader *sdkmetric.ManualReader) map[string]int64 {
	t.Helper()
	var rm metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(context.Background(), &rm))
	out := map[string]int64{}
	for _, m := range rm.ScopeMetrics[0].Metrics {
		sum, ok := m.Data.(metricdata.Sum[int64])
		if !ok {
			continue
		}
		for _, p := range sum.DataPoints {
			topic, _ := p.Attributes.Value("topic")
			outcome, _ := p.Attributes.Value("outcome")
			out[m.Name+" "+topic.AsString()+" "+outcome.AsString()] = p.Value
		}
	}
	return out
}

// More callers than producers take turns.
func TestPublishWaitsForAProducer(t *testing.T) {
	t.Parallel()
	cfg := declared(pulsartest.Open(t), "order", "s")
	cfg.Producers = 1
	b := connect(t, cfg)
	errs := make(chan error, 8)
	for k := range cap(errs) {
		go func() { errs <- b.Publish(t.Context(), []event.Envelope{envelope("order", string(rune('a'+k)), 1)}) }()
	}
	for range cap(errs) {
		require.NoError(t, <-errs)
	}
	top, err := b.topic("order")
	require.NoError(t, err)
	require.Len(t, top.idle, 1)

	// None comes free: nothing is sent, no attempt is spent.
	taken := <-top.idle
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	failed := failures(t, b.Publish(ctx, []event.Envelope{envelope("order", "a", 2)}))
	require.ErrorIs(t, failed[0], messaging.ErrUnknown)
	top.giveBack(taken)
}
