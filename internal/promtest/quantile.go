package promtest

import (
	"math"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// Quantile computes what Prometheus' histogram_quantile returns for the series of a load: it assumes that the values of
// a bucket are spread evenly, and takes the lower bound for the last bucket.
func Quantile(t testing.TB, from prometheus.Gatherer, name, load string, q float64) float64 {
	t.Helper()
	families, err := from.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if Bare(f.GetName()) != name {
			continue
		}
		for _, m := range f.GetMetric() {
			of := ""
			for _, l := range m.GetLabel() {
				if l.GetName() == "outcome" {
					of = l.GetValue()
				}
			}
			if of != load {
				continue
			}
			rank, lower, below := q*float64(m.GetHistogram().GetSampleCount()), 0.0, 0.0
			for _, b := range m.GetHistogram().GetBucket() {
				within := float64(b.GetCumulativeCount())
				if within >= rank && !math.IsInf(b.GetUpperBound(), 1) {
					return lower + (b.GetUpperBound()-lower)*(rank-below)/(within-below)
				}
				lower, below = b.GetUpperBound(), within
			}
			return lower
		}
	}
	require.Failf(t, "no such series", "%s of the load %s", name, load)
	return 0
}
