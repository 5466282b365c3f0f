package publishing_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/metricstest"
	"github.com/oncebox/oncebox/internal/publishing"
	"github.com/oncebox/oncebox/telemetry"
)

// A call that takes 9 ms is counted in the bucket from 5 to 10 ms.
func TestDurationIsThatOfTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := metric.NewManualReader()
		to := telemetry.Config{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))}
		tel := publishing.New(to, "messaging/pulsar", "pulsar")
		for range 20 {
			require.NoError(t, tel.Call(t.Context(), []event.Envelope{{Topic: "order"}}, func(context.Context) map[int]error {
				time.Sleep(9 * time.Millisecond)
				return nil
			}))
		}
		low, high := metricstest.Bucket(t, reader, "oncebox.broker.publish.duration")
		require.Equal(t, [2]float64{.005, .01}, [2]float64{low, high})
	})
}
