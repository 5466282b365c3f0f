package memory_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/telemetry"
)

// envelope returns the n-th message of a key. Its id shows both.
func envelope(key string, n int) event.Envelope {
	return event.Envelope{ID: key + strconv.Itoa(n), Type: "t", Source: "s", TenantID: "t1", Topic: "topic", RoutingKey: key, Sequence: int64(n)}
}

func open(t *testing.T, cfg *memory.Config) *memory.Broker {
	t.Helper()
	b := memory.New(cfg)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func subscribe(t *testing.T, b *memory.Broker, s messaging.Subscription) messaging.Receiver {
	t.Helper()
	s.Topic = "topic"
	r, err := b.Subscribe(t.Context(), s)
	require.NoError(t, err)
	return r
}

func receive(t *testing.T, r messaging.Receiver) *messaging.Message {
	t.Helper()
	m, err := r.Receive(t.Context())
	require.NoError(t, err)
	return m
}

func TestRefuse(t *testing.T) {
	b := open(t, nil)
	no := errors.New("no")
	b.Refuse(func(e event.Envelope) error {
		b.Messages("topic") // the broker can be used in here
		if e.ID == "a2" {
			return no
		}
		return nil
	})
	msgs := []event.Envelope{envelope("a", 1), envelope("a", 2), envelope("b", 1), envelope("a", 3)}
	var partial *messaging.PublishError
	require.ErrorAs(t, b.Publish(t.Context(), msgs), &partial)
	require.Equal(t, map[int]error{1: no, 3: messaging.ErrBehind}, partial.Failed)
	require.Len(t, b.Messages("topic"), 2)

	b.Refuse(nil)
	require.NoError(t, b.Publish(t.Context(), []event.Envelope{msgs[1], msgs[3]}))
	ids := []string{}
	for _, e := range b.Messages("topic") {
		ids = append(ids, e.ID)
	}
	require.Equal(t, []string{"a1", "b1", "a2", "a3"}, ids)
	require.Empty(t, b.Messages("another"))
}

func TestRedeliver(t *testing.T) {
	b := open(t, nil)
	r := subscribe(t, b, messaging.Subscription{Name: "s"})
	require.NoError(t, b.Publish(t.Context(), []event.Envelope{envelope("a", 1), envelope("a", 2)}))
	first := receive(t, r)
	require.NoError(t, r.Ack(t.Context(), first))
	require.NoError(t, b.Redeliver("s", "topic", "a1"))
	require.Equal(t, "a1", receive(t, r).ID, "it comes before what waits")
	require.Equal(t, "a2", receive(t, r).ID)

	require.ErrorContains(t, b.Redeliver("s", "other", "a1"), `no topic "other"`)
	require.ErrorContains(t, b.Redeliver("x", "topic", "a1"), `no subscription "x"`)
	require.ErrorContains(t, b.Redeliver("s", "topic", "a9"), `no message with id "a9"`)
}

func TestDisconnect(t *testing.T) {
	for _, kind := range []messaging.SubscriptionType{messaging.Failover, messaging.KeyShared, messaging.Shared} {
		t.Run(kind.String(), func(t *testing.T) {
			b := open(t, nil)
			r := subscribe(t, b, messaging.Subscription{Name: "s", Type: kind})
			require.NoError(t, b.Publish(t.Context(), []event.Envelope{envelope("a", 1), envelope("a", 2), envelope("a", 3), envelope("a", 4)}))
			first, second := receive(t, r), receive(t, r)
			require.NoError(t, r.Ack(t.Context(), receive(t, r)))
			b.Disconnect()
			require.NoError(t, r.Ack(t.Context(), first), "late, but settled")
			again := receive(t, r)
			require.Equal(t, second.ID, again.ID)
			require.Equal(t, 2, again.Attempt)
			require.Equal(t, "a4", receive(t, r).ID)
		})
	}
}

func TestAttempts(t *testing.T) {
	b := open(t, nil)
	require.NoError(t, b.Publish(t.Context(), []event.Envelope{envelope("a", 1)}))
	r := subscribe(t, b, messaging.Subscription{Name: "s"})
	m := receive(t, r)
	require.Equal(t, 1, m.Attempt)
	require.NoError(t, r.Redeliver(t.Context(), m))
	require.Equal(t, 2, receive(t, r).Attempt)
	require.NoError(t, r.Close())
	require.Equal(t, 3, receive(t, subscribe(t, b, messaging.Subscription{Name: "s"})).Attempt)
}

func TestRetain(t *testing.T) {
	b := open(t, &memory.Config{Retain: 2})
	slow := subscribe(t, b, messaging.Subscription{Name: "slow"})
	for n := range 5 {
		require.NoError(t, b.Publish(t.Context(), []event.Envelope{envelope("a", n)}))
	}
	require.Len(t, b.Messages("topic"), 5, "a subscription has not settled them")
	other := subscribe(t, b, messaging.Subscription{Name: "other"})
	for range 3 {
		m := receive(t, other)
		require.NoError(t, other.Ack(t.Context(), m))
		require.NoError(t, other.Ack(t.Context(), m))
	}
	require.Len(t, b.Messages("topic"), 5, "settled twice by one is not settled by both")
	for range 3 {
		require.NoError(t, slow.Ack(t.Context(), receive(t, slow)))
	}
	require.Len(t, b.Messages("topic"), 2)
	require.Equal(t, "a3", receive(t, subscribe(t, b, messaging.Subscription{Name: "late"})).ID)
}

func TestRefusesWhatNoBrokerTakes(t *testing.T) {
	b := open(t, &memory.Config{MaxMessageBytes: 100})
	for _, topic := range []string{"", "a/b", "a%2Fb", "a\x00"} {
		e := envelope("a", 1)
		e.Topic = topic
		require.True(t, messaging.IsPermanent(b.Publish(t.Context(), []event.Envelope{e})), "%q", topic)
	}
	e := envelope("a", 1)
	e.Metadata = event.Metadata{"k": string(make([]byte, 100))}
	require.ErrorContains(t, b.Publish(t.Context(), []event.Envelope{e}), "more than the 100 of Config.MaxMessageBytes")
}

func TestConfig(t *testing.T) {
	err := (&memory.Config{Partitions: -1, MaxMessageBytes: -1, Retain: -1}).Validate()
	for _, field := range []string{"Partitions", "MaxMessageBytes", "Retain"} {
		require.ErrorContains(t, err, field)
	}
	require.Panics(t, func() { memory.New(&memory.Config{Partitions: -1}) })
	require.NoError(t, (*memory.Config)(nil).Validate())
}

func TestCountsWhatIsPublished(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	b := open(t, &memory.Config{Telemetry: telemetry.Config{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))}})
	bad := envelope("c", 1)
	bad.Topic = "a/b"
	require.Error(t, b.Publish(t.Context(), []event.Envelope{envelope("a", 1), envelope("b", 1), bad}))
	var rm metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &rm))
	got := map[string]int64{}
	for _, p := range rm.ScopeMetrics[0].Metrics[0].Data.(metricdata.Sum[int64]).DataPoints {
		outcome, _ := p.Attributes.Value("outcome")
		got[outcome.AsString()] = p.Value
	}
	require.Equal(t, "oncebox.broker.published", rm.ScopeMetrics[0].Metrics[0].Name)
	require.Equal(t, map[string]int64{"ok": 2, "failed": 1}, got)
}

func TestBacklog(t *testing.T) {
	for _, kind := range []messaging.SubscriptionType{messaging.Failover, messaging.KeyShared, messaging.Shared} {
		t.Run(kind.String(), func(t *testing.T) {
			b := open(t, &memory.Config{Partitions: 1})
			r := subscribe(t, b, messaging.Subscription{Name: "s", Consumer: "a", Type: kind}).(messaging.BacklogReceiver)
			standby := subscribe(t, b, messaging.Subscription{Name: "s", Consumer: "b", Type: kind}).(messaging.BacklogReceiver)
			require.NoError(t, b.Publish(t.Context(), []event.Envelope{envelope("a", 1), envelope("a", 2)}))
			got, err := r.Backlog(t.Context())
			require.NoError(t, err)
			require.Equal(t, messaging.Backlog{Topic: "topic", Messages: 2}, got)
			got, err = standby.Backlog(t.Context())
			require.NoError(t, err)
			if kind == messaging.Failover {
				require.Zero(t, got.Messages, "not its partition")
			} else {
				require.Equal(t, int64(2), got.Messages)
			}
			require.NoError(t, r.Close())
			require.NoError(t, standby.Ack(t.Context(), receive(t, standby)))
			got, err = standby.Backlog(t.Context())
			require.NoError(t, err)
			require.Equal(t, messaging.Backlog{Topic: "topic", Messages: 1, Settled: 1}, got)
			_, err = r.Backlog(t.Context())
			require.ErrorIs(t, err, messaging.ErrClosed)
		})
	}
}

func TestTopicWithoutAConsumerIsToldOnce(t *testing.T) {
	var log logbook.Book
	b := memory.New(&memory.Config{Telemetry: telemetry.Config{Logger: log.Logger()}})
	_, err := b.Subscribe(t.Context(), messaging.Subscription{Topic: "read", Name: "billing"})
	require.NoError(t, err)
	for _, topic := range []string{"read", "unread", "unread"} {
		require.NoError(t, b.Publish(t.Context(), []event.Envelope{{ID: "1", Type: "thing.happened", Topic: topic}}))
	}
	require.Equal(t, 1, strings.Count(log.String(), "no consumer in this process is subscribed"), log.String())
	require.Contains(t, log.String(), "topic=unread")
}
