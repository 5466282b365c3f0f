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

// Add counts n.
func (c *TenantCounter) Add(n int64, topic, tenant string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	pair := [2]string{topic, tenant}
	if _, known := c.totals[pair]; !known && len(c.totals) >= MaxSeries {
		pair = [2]string{Other, Other}
	}
	if c.totals == nil {
		c.totals = map[[2]string]int64{}
	}
	c.totals[pair] += n
}

// Show makes the metric. At each collection before is called first, unless it is nil: it may still add.
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

// Histogram returns a histogram of seconds with these bounds.
func Histogram(m metric.Meter, name, description string, bounds ...float64) metric.Float64Histogram {
	h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description), metric.WithExplicitBucketBoundaries(bounds...))
	if err != nil || h == nil {
		handle(err)
		return noop.Float64Histogram{}
	}
	return h
}
