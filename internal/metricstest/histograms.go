package metricstest

import (
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Histograms is a meter provider that remembers every histogram that is made, even if no value is recorded in it.
type Histograms struct {
	metric.MeterProvider

	mu      sync.Mutex
	seconds map[string]metric.Float64Histogram
	counts  map[string]metric.Int64Histogram
}

// NewHistograms wraps a provider.
func NewHistograms(p metric.MeterProvider) *Histograms {
	return &Histograms{MeterProvider: p, seconds: map[string]metric.Float64Histogram{}, counts: map[string]metric.Int64Histogram{}}
}

// Meter implements [metric.MeterProvider].
func (h *Histograms) Meter(name string, opts ...metric.MeterOption) metric.Meter {
	return meter{h.MeterProvider.Meter(name, opts...), h}
}

// Seconds and Counts return the bare names of the histograms of seconds, and of the others.
func (h *Histograms) Seconds() []string { return namesOf(&h.mu, h.seconds) }

// Counts: see Seconds.
func (h *Histograms) Counts() []string { return namesOf(&h.mu, h.counts) }

func namesOf[T any](mu *sync.Mutex, histograms map[string]T) []string {
	mu.Lock()
	defer mu.Unlock()
	names := slices.Sorted(maps.Keys(histograms))
	for i, name := range names {
		names[i] = strings.ReplaceAll(name, ".", "_")
	}
	return names
}

// Load records values in each histogram: seconds in those of seconds, counts in the others. The labels consumer, topic
// and outcome have the value load.
func (h *Histograms) Load(ctx context.Context, load string, seconds []float64, counts []int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	as := metric.WithAttributes(attribute.String("consumer", load), attribute.String("topic", load), attribute.String("outcome", load))
	for _, histogram := range h.seconds {
		for _, value := range seconds {
			histogram.Record(ctx, value, as)
		}
	}
	for _, histogram := range h.counts {
		for _, value := range counts {
			histogram.Record(ctx, value, as)
		}
	}
}

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

// meter is a meter of Histograms.
type meter struct {
	metric.Meter

	all *Histograms
}

func (m meter) Float64Histogram(name string, opts ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	made, err := m.Meter.Float64Histogram(name, opts...)
	m.all.mu.Lock()
	defer m.all.mu.Unlock()
	m.all.seconds[name] = made
	return made, err
}

func (m meter) Int64Histogram(name string, opts ...metric.Int64HistogramOption) (metric.Int64Histogram, error) {
	made, err := m.Meter.Int64Histogram(name, opts...)
	m.all.mu.Lock()
	defer m.all.mu.Unlock()
	m.all.counts[name] = made
	return made, err
}
