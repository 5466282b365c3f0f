package metricstest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

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
