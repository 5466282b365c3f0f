package messaging_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/telemetry"
)

// informed is a receiver whose broker reports what waits.
type informed struct {
	*fakeReceiver
	messages, settled atomic.Int64
	silent            atomic.Bool
}

func (r *informed) Backlog(context.Context) (messaging.Backlog, error) {
	if r.silent.Load() {
		return messaging.Backlog{}, errors.New("no answer")
	}
	return messaging.Backlog{Topic: "thing", Messages: r.messages.Load(), Settled: r.settled.Load()}, nil
}

// Leave does nothing: what waits is what the test says.
func (*informed) Leave(*messaging.Message) {}

func watched(t *testing.T, cfg *messaging.ConsumerConfig) (*informed, *messaging.Consumer) {
	t.Helper()
	r := &informed{fakeReceiver: newFakeReceiver()}
	c, stop := start(t, r, newScript(fine), cfg)
	t.Cleanup(func() { require.NoError(t, stop()) })
	return r, c
}

func TestStandstillAtTheBroker(t *testing.T) {
	const limit = time.Minute
	for name, c := range map[string]struct {
		each    func(r *informed, c *messaging.Consumer) // between two looks
		once    bool
		stalled bool
	}{
		"nothing happens":          {func(*informed, *messaging.Consumer) {}, false, true},
		"it grows":                 {func(r *informed, _ *messaging.Consumer) { r.messages.Add(1) }, false, true},
		"nothing waits":            {func(r *informed, _ *messaging.Consumer) { r.messages.Store(0) }, true, false},
		"another consumer settles": {func(r *informed, _ *messaging.Consumer) { r.settled.Add(1) }, false, false},
		"this one settles":         {func(r *informed, _ *messaging.Consumer) { r.incoming <- msg("a", 1) }, false, false},
		"it is paused":             {func(_ *informed, c *messaging.Consumer) { c.Pause() }, true, false},
		"the broker does not tell": {func(r *informed, _ *messaging.Consumer) { r.silent.Store(true) }, true, false},
		"it tells now and then":    {func(r *informed, _ *messaging.Consumer) { r.silent.Store(!r.silent.Load()) }, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, consumer := watched(t, nil)
				require.False(t, consumer.Progress().Stalled(limit))
				r.messages.Store(3)
				time.Sleep(21 * time.Second)
				stalled := false
				for i := range 10 {
					if i == 0 || !c.once {
						c.each(r, consumer)
					}
					time.Sleep(20 * time.Second)
					stalled = stalled || consumer.Progress().Stalled(limit)
				}
				require.Equal(t, c.stalled, stalled)
			})
		})
	}
}

func TestStandstillIsKnownAfterTheLimitAndEndsWithProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := watched(t, nil)
		r.messages.Store(3)
		time.Sleep(61 * time.Second) // looks at 20, 40 and 60 s
		require.Equal(t, messaging.Progress{Backlog: 3, Standstill: 40 * time.Second}, c.Progress())
		time.Sleep(40 * time.Second)
		require.True(t, c.Progress().Stalled(time.Minute))
		r.settled.Add(1)
		time.Sleep(20 * time.Second)
		require.False(t, c.Progress().Stalled(time.Minute))
		require.Zero(t, c.Progress().Standstill)
	})
}

func TestBacklogIsNotAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := watched(t, &messaging.ConsumerConfig{BacklogInterval: -1})
		r.messages.Store(3)
		time.Sleep(time.Hour)
		require.Zero(t, c.Progress())
	})
	require.ErrorContains(t, (&messaging.ConsumerConfig{BacklogInterval: -2}).Validate(), "BacklogInterval")
}

func TestBacklogIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := metric.NewManualReader()
		r, _ := watched(t, &messaging.ConsumerConfig{Name: "billing",
			Telemetry: telemetry.Config{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))}})
		r.messages.Store(3)
		time.Sleep(21 * time.Second)
		var data metricdata.ResourceMetrics
		require.NoError(t, reader.Collect(t.Context(), &data))
		require.Len(t, data.ScopeMetrics[0].Metrics, 1)
		got := data.ScopeMetrics[0].Metrics[0]
		require.Equal(t, "oncebox.consumer.backlog", got.Name)
		point := got.Data.(metricdata.Gauge[int64]).DataPoints[0]
		require.Equal(t, int64(3), point.Value)
		topic, _ := point.Attributes.Value("topic")
		consumer, _ := point.Attributes.Value("consumer")
		require.Equal(t, "thing/billing", topic.AsString()+"/"+consumer.AsString())
	})
}
