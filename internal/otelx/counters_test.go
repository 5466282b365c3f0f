package otelx_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/oncebox/oncebox/internal/otelx"
)

func TestTenantCounterIsBounded(t *testing.T) {
	reader := metric.NewManualReader()
	c := otelx.NewTenantCounter(metric.NewMeterProvider(metric.WithReader(reader)).Meter("test"), "refused", "")
	for range 2 {
		for n := range otelx.MaxSeries + 10 {
			c.Add(t.Context(), 1, "order", fmt.Sprint(n))
		}
	}
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	found := map[string]int64{}
	for _, p := range all.ScopeMetrics[0].Metrics[0].Data.(metricdata.Sum[int64]).DataPoints {
		tenant, _ := p.Attributes.Value("tenant")
		found[tenant.AsString()] = p.Value
	}
	require.Len(t, found, otelx.MaxSeries+1)
	require.EqualValues(t, 2, found["0"])
	require.EqualValues(t, 20, found[otelx.Other])
}
