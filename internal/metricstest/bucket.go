package metricstest

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// Bucket returns the bounds of a histogram's bucket. It fails the test if the values are in several buckets.
func Bucket(t testing.TB, from metric.Reader, name string) (low, high float64) {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, from.Collect(t.Context(), &all))
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name == name {
				points := m.Data.(metricdata.Histogram[float64]).DataPoints //nolint:forcetypeassert // a panic fails the test as well
				require.Len(t, points, 1, name)
				for i, count := range points[0].BucketCounts {
					if count > 0 {
						require.Equal(t, points[0].Count, count, "%s: all are in one bucket", name)
						return points[0].Bounds[i-1], points[0].Bounds[i]
					}
				}
			}
		}
	}
	require.Failf(t, "no such histogram", name)
	return 0, 0
}
