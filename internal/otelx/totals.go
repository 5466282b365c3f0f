package otelx

import (
	"context"
	"maps"
	"sync"

	"go.opentelemetry.io/otel/metric"
)

// TenantTotals counts by topic and tenant, as [TenantCounter] does, and is read when metrics are collected: what costs time there costs the
// counted work nothing.
type TenantTotals struct {
	mu     sync.Mutex
	totals map[[2]string]int64
}

// Add counts n.
func (c *TenantTotals) Add(n int64, topic, tenant string) {
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

// Show makes the counter. At each collection before is called first, which may still add.
func (c *TenantTotals) Show(m metric.Meter, name, description string, before func(context.Context)) {
	counter, err := m.Int64ObservableCounter(name, metric.WithDescription(description))
	if err != nil || counter == nil {
		handle(err)
		return
	}
	_, err = m.RegisterCallback(func(ctx context.Context, to metric.Observer) error {
		before(ctx)
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
