package otelx

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// TenantCounter counts by topic and tenant. The first [MaxSeries] pairs that a process meets have a series each, all others share one.
type TenantCounter struct {
	counter metric.Int64Counter

	mu     sync.Mutex
	series map[[2]string]metric.MeasurementOption
}

// NewTenantCounter returns a counter.
func NewTenantCounter(m metric.Meter, name, description string) *TenantCounter {
	return &TenantCounter{counter: Counter(m, name, description), series: map[[2]string]metric.MeasurementOption{}}
}

// Add counts n.
func (c *TenantCounter) Add(ctx context.Context, n int64, topic, tenant string) {
	c.counter.Add(ctx, n, c.of(topic, tenant))
}

func (c *TenantCounter) of(topic, tenant string) metric.MeasurementOption {
	c.mu.Lock()
	defer c.mu.Unlock()
	pair := [2]string{topic, tenant}
	option := c.series[pair]
	if option == nil && len(c.series) < MaxSeries {
		option = TopicAndTenant(topic, tenant)
		c.series[pair] = option
	}
	if option == nil {
		return TopicAndTenant(Other, Other)
	}
	return option
}

// Histogram returns a histogram of seconds with these bounds.
func Histogram(m metric.Meter, name, description string, bounds ...float64) metric.Float64Histogram {
	h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description), metric.WithExplicitBucketBoundaries(bounds...))
	if err != nil || h == nil {
		handle(err)
		return noop.Float64Histogram{}
	}
	return h
}
