package measure

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/oncebox/oncebox/internal/metricstest"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// What the metrics show of a broker that takes 9 ms, and of events that have waited for 40 ms by then, lies between the bounds that are next to it.
// Of several events the oldest one counts that was confirmed.
func TestLatencyAndLagAreThoseOfTheBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := metric.NewManualReader()
		tel := New(metric.NewMeterProvider(metric.WithReader(reader)))
		since := map[string]time.Duration{"young": time.Millisecond, "old": 31 * time.Millisecond, "refused": time.Hour}
		for range 20 {
			began := time.Now()
			var rows []*outboxdb.Row
			for _, id := range []string{"young", "old", "refused"} {
				row := &outboxdb.Row{CreatedAt: began.Add(-since[id])}
				row.ID = id
				rows = append(rows, row)
			}
			time.Sleep(9 * time.Millisecond)
			tel.Took(t.Context(), rows, map[int]error{2: errors.New("no")}, began, func(r *outboxdb.Row) time.Time { return r.CreatedAt })
		}
		low, high := metricstest.Bucket(t, reader, "oncebox.outbox.publish.latency")
		require.Equal(t, [2]float64{.005, .01}, [2]float64{low, high})
		low, high = metricstest.Bucket(t, reader, "oncebox.outbox.lag")
		require.Equal(t, [2]float64{.025, .05}, [2]float64{low, high})
	})
}
