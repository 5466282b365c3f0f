package measure

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	outboxstate "github.com/oncebox/oncebox/outbox/state"
)

// A dashboard gets no more series than it can show, however many tenants there are, and their sum is right.
func TestGaugesNameTheLargestShares(t *testing.T) {
	reader := sdk.NewManualReader()
	g := newGauges(sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("test"))
	var shares []outboxstate.Share
	for n := range 60 {
		shares = append(shares, outboxstate.Share{Topic: "order", Tenant: fmt.Sprintf("t%02d", n), New: 100, Held: 1, Dead: 2})
	}
	defer g.all.Show(func(_ context.Context, to metric.Observer) error { g.showShares(to, shares); return nil })()
	series := func() map[string]int64 {
		var all metricdata.ResourceMetrics
		require.NoError(t, reader.Collect(t.Context(), &all))
		found := map[string]int64{}
		for _, m := range all.ScopeMetrics[0].Metrics {
			for _, p := range m.Data.(metricdata.Gauge[int64]).DataPoints {
				tenant, _ := p.Attributes.Value(attribute.Key("tenant"))
				found[m.Name+" "+tenant.AsString()] = p.Value
			}
		}
		return found
	}
	found := series()
	require.Len(t, found, 2*51)
	require.EqualValues(t, 101, found["oncebox.outbox.backlog t00"])
	require.EqualValues(t, 2, found["oncebox.outbox.dead t49"])
	require.EqualValues(t, 10*101, found["oncebox.outbox.backlog other"])
	require.EqualValues(t, 10*2, found["oncebox.outbox.dead other"])

	shares = nil
	require.Equal(t, map[string]int64{"oncebox.outbox.backlog other": 0, "oncebox.outbox.dead other": 0}, series(), "an empty outbox is no missing one")
}
