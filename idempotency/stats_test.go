package idempotency_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgplan"
	"github.com/oncebox/oncebox/telemetry"
)

func TestStats(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	read := func() idempotency.Stats {
		t.Helper()
		st, err := d.store.Stats(t.Context(), d.db.DB)
		require.NoError(t, err)
		return st
	}
	require.Equal(t, idempotency.Stats{}, read())
	d.unknown("pay")
	_, err := d.db.Exec(`UPDATE idempotency_step SET begun_at = now() - interval '1 hour'`)
	require.NoError(t, err)
	_, err = d.db.Exec(`INSERT INTO idempotency_keys (key_hash, tenant_id, state, fingerprint_tag, fingerprint, expires_at, locked_until)
		SELECT decode(md5(i::text), 'hex'), 't', 'claimed', 'f', '', now() + i * interval '1 hour', now() FROM generate_series(-2, 3) i`)
	require.NoError(t, err)
	st := read() // of a table that nobody has analyzed
	require.InDelta(t, time.Hour, st.OldestUnknown, float64(time.Minute))
	st.OldestUnknown = 0
	require.Equal(t, idempotency.Stats{Keys: 7, Claimed: 4, Unknown: 1, Expired: 3}, st, "the unknown one is claimed until somebody repeats its request")
}

func TestStateIsShownAsMetrics(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.unknown("pay")
	reader := sdk.NewManualReader()
	store := idempotency.NewStore(&idempotency.Config{Telemetry: telemetry.Config{MeterProvider: sdk.NewMeterProvider(sdk.WithReader(reader))}})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); store.Observe(ctx, d.db.DB) }()
	shown := func() map[string]float64 {
		var all metricdata.ResourceMetrics
		require.NoError(t, reader.Collect(t.Context(), &all))
		found := map[string]float64{}
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				switch data := m.Data.(type) {
				case metricdata.Gauge[int64]:
					found[m.Name] = float64(data.DataPoints[0].Value)
				case metricdata.Gauge[float64]:
					found[m.Name] = data.DataPoints[0].Value
				}
			}
		}
		return found
	}
	await.True(t, func() bool { return len(shown()) == 5 }, "the gauges to show something")
	found := shown()
	require.InDelta(t, 1, found["oncebox.idempotency.unknown"], 0)
	require.Positive(t, found["oncebox.idempotency.oldest_unknown"])
	stop()
	<-done
	require.Empty(t, shown(), "nothing old is shown")
}

// Operators find what they look for among any number of answers.
func TestPlansForOperators(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	_, err := d.db.Exec(`INSERT INTO idempotency_keys (key_hash, tenant_id, state, fingerprint_tag, fingerprint, expires_at, status, headers, body)
		SELECT decode(md5(i::text), 'hex'), 't', 'completed', 'f', '', now() + interval '1 hour', 200, '{}', 'x' FROM generate_series(1, 50000) i`)
	require.NoError(t, err)
	_, err = d.db.Exec("VACUUM ANALYZE idempotency_keys, idempotency_step")
	require.NoError(t, err)
	for name, statement := range map[string]string{"statistics": idempotency.Statistics, "open": idempotency.OpenClaims} {
		plan, err := pgplan.Generic(t.Context(), d.db.DB.DB, statement)
		require.NoError(t, err)
		require.NotContains(t, plan.Text, "Seq Scan on idempotency_keys", name)
		require.NotContains(t, plan.Text, "JIT", name)
	}
}
