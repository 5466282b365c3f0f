package inbox_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/telemetry"
)

func TestStats(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stats, err := w.box.State().Stats(t.Context())
	require.NoError(t, err)
	require.Empty(t, stats)

	w.failed("a", "o1")
	w.failed("c", "o2")
	w.kill(w.box, "billing", ordered("b", "o1"), ordered("d", "o3"), ordered("e", "o3"), unordered("u"))
	stored := w.box.Wrap("durable", messaging.HandlerFunc(w.effect), inbox.StoreFirst())
	require.NoError(t, stored.Handle(t.Context(), ordered("a", "o1")))
	w.kill(w.box, "shipping", unordered("u"))
	w.exec("UPDATE inbox_parked SET parked_at = now() - interval '1 hour' WHERE message_id = 'c'")
	stats, err = w.operator().State().Stats(t.Context())
	require.NoError(t, err)
	require.Len(t, stats, 3)
	require.InDelta(t, time.Hour, stats[0].OldestParked, float64(time.Minute))
	require.InDelta(t, 0, stats[1].OldestParked, float64(time.Minute))
	stats[0].OldestParked, stats[1].OldestParked = 0, 0
	require.Equal(t, []state.Stats{
		{Consumer: "billing", Counted: 10_000, Failed: 2, Dead: 1, Parked: 4, DeadLetters: 2},
		{Consumer: "durable", Counted: 10_000, Waiting: 1, Parked: 1},
		{Consumer: "shipping", Counted: 10_000, DeadLetters: 1},
	}, stats)
}

// With many consumers in trouble, fewer letters of each are counted, so that the statement does not cost more than with a few consumers.
func TestStatsCountLessOfEachOfManyConsumers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(fmt.Sprintf(deadRows, 3000))
	for consumers, want := range map[int]state.Stats{1: {DeadLetters: 3000, Counted: 10_000}, 100: {DeadLetters: 30, Counted: 1000}} {
		w.exec(fmt.Sprintf("UPDATE inbox_dead SET consumer = 'c' || seq %% %d", consumers))
		stats, err := w.operator().State().Stats(t.Context())
		require.NoError(t, err)
		require.Len(t, stats, consumers)
		want.Consumer = "c0"
		require.Equal(t, want, stats[0])
	}
}

func TestStateIsShownAsMetrics(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.failed("a", "o1")
	parked := time.Now()
	w.exec("UPDATE inbox_parked SET parked_at = now() - interval '1 hour'")
	w.kill(w.box, "shipping", unordered("u"))
	reader := sdkmetric.NewManualReader()
	box := newBox(w.units, &inbox.Config{Telemetry: telemetry.Config{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))}})
	box.Wrap("billing", messaging.HandlerFunc(func(context.Context, *messaging.Message) error { return errNotNow }))
	runParked(t, box)
	var got map[string]int64
	await.True(t, func() bool {
		got = gauges(t, reader)
		return len(got) > 0
	}, "the gauges show something")
	require.EqualValues(t, 1, got["oncebox.inbox.parked billing"])
	require.EqualValues(t, 1, got["oncebox.inbox.keys billing failed"])
	require.EqualValues(t, 0, got["oncebox.inbox.keys billing dead"])
	require.EqualValues(t, 0, got["oncebox.inbox.dead billing"])
	require.EqualValues(t, 1, got["oncebox.inbox.dead shipping"])
	age := got["oncebox.inbox.oldest_age billing"]
	require.GreaterOrEqual(t, age, int64(3600))
	require.LessOrEqual(t, age, int64(3600+time.Since(parked)/time.Second)+1, "an hour and the time of this test")
}

// gauges returns what the gauges show, under their names, consumers and states, once all of them do.
func gauges(t *testing.T, reader *sdkmetric.ManualReader) map[string]int64 {
	t.Helper()
	var metrics metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &metrics))
	got, names := map[string]int64{}, 0
	for _, scope := range metrics.ScopeMetrics {
		for _, m := range scope.Metrics {
			if age, ok := m.Data.(metricdata.Gauge[float64]); ok {
				for _, point := range age.DataPoints {
					consumer, _ := point.Attributes.Value("consumer")
					got[m.Name+" "+consumer.AsString()] = int64(point.Value)
				}
			}
			gauge, ok := m.Data.(metricdata.Gauge[int64])
			if !ok {
				continue
			}
			names++
			for _, point := range gauge.DataPoints {
				name := m.Name
				for _, key := range []attribute.Key{"consumer", "state"} {
					if v, ok := point.Attributes.Value(key); ok {
						name += " " + v.AsString()
					}
				}
				got[name] = point.Value
			}
		}
	}
	if names < 3 || len(got) < 12 { // two consumers: parked, dead, age, and keys in three states
		return nil
	}
	return got
}
