package otelx

import (
	"context"
	"maps"
	"sync"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// TenantCounter counts by topic and tenant. It is read when metrics are collected, so the cost of a metric does not slow down the counted work. The
// first [MaxSeries] pairs in a process have a series each, all others share one. The zero value counts; [TenantCounter.Show] makes it a metric.
type TenantCounter struct {
	mu     sync.Mutex
	totals map[[2]string]int64
}

// Add adds n to the count of a topic and tenant.
func (c *TenantCounter) Add(n int64, topic, tenant string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// A tenant that is new after MaxSeries pairs goes to the common series, so the metric's memory stays bounded
	// however many tenants there are.
	pair := [2]string{topic, tenant}
	if _, known := c.totals[pair]; !known && len(c.totals) >= MaxSeries {
		pair = [2]string{Other, Other}
	}
	if c.totals == nil {
		c.totals = map[[2]string]int64{}
	}
	c.totals[pair] += n
}

// Show makes the metric. before, unless it is nil, is called at the beginning of each collection, and may
// still add counts.
func (c *TenantCounter) Show(m metric.Meter, name, description string, before func(context.Context)) {
	counter, err := m.Int64ObservableCounter(name, metric.WithDescription(description))
	if err != nil || counter == nil {
		handle(err)
		return
	}
	_, err = m.RegisterCallback(func(ctx context.Context, to metric.Observer) error {
		if before != nil {
			before(ctx)
		}
		// Cloned, because observing calls foreign code, and counting must not wait for that.
		c.mu.Lock()
		totals := maps.Clone(c.totals)
		c.mu.Unlock()
		for pair, n := range totals {
			to.ObserveInt64(counter, n, TopicAndTenant(pair[0], pair[1]))
		}
		return nil
	}, counter)
	handle(err)
}

// Histogram returns a histogram of seconds with these bucket bounds. The default bounds of OpenTelemetry are meant for
// milliseconds, and would put nearly everything into one bucket.
func Histogram(m metric.Meter, name, description string, bounds ...float64) metric.Float64Histogram {
	return made[metric.Float64Histogram](noop.Float64Histogram{})(
		m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description), metric.WithExplicitBucketBoundaries(bounds...)))
}

// Running returns a counter that can also go down.
func Running(m metric.Meter, name, description string) metric.Int64UpDownCounter {
	return made[metric.Int64UpDownCounter](noop.Int64UpDownCounter{})(m.Int64UpDownCounter(name, metric.WithDescription(description)))
}

// Gauge returns a gauge that keeps its last value. Use [Gauges] for a state that is only read from time to time.
func Gauge(m metric.Meter, name, description string) metric.Int64Gauge {
	return made[metric.Int64Gauge](noop.Int64Gauge{})(m.Int64Gauge(name, metric.WithDescription(description)))
}
