package outbox_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/telemetry"
)

// refusedAtCommit makes COMMIT fail for a transaction with such an event.
const refusedAtCommit = `
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused at COMMIT'; END $$;
CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON outbox DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW WHEN (NEW.event_type = 'refused') EXECUTE FUNCTION refuse()`

// In a caller's own transaction, the metric counts what was committed, as soon as it is committed, and nothing else.
func TestRecordedInATransactionOfACallersOwn(t *testing.T) {
	metrics := metric.NewManualReader()
	f := newFixture(t, &outbox.Config{Telemetry: telemetry.Config{MeterProvider: metric.NewMeterProvider(metric.WithReader(metrics))}})
	_, err := f.DB.Exec(refusedAtCommit)
	require.NoError(t, err)
	elsewhere := draft("placed", "a", event.WithTenantID("t1"))
	elsewhere.Topic = "parcel"
	drafts := []outbox.Draft{elsewhere, draft("placed", "b"), draft("placed", "c")}
	for name, add := range f.waysToAddAll() {
		t.Run(name, func(t *testing.T) {
			before := recorded(t, metrics)
			_, err := add(drafts, func() error { return errors.New("not now") })
			require.ErrorContains(t, err, "not now")
			_, err = add(append(drafts, draft("refused", "d")), nil)
			require.ErrorContains(t, err, "refused at COMMIT")
			require.Equal(t, before, recorded(t, metrics))

			again := draft("placed", "d", event.WithDedupKey(name))
			_, err = add(append(drafts, again, again), func() error {
				require.Equal(t, before, recorded(t, metrics), "the transaction is open")
				return nil
			})
			require.NoError(t, err)
			_, err = add([]outbox.Draft{again}, nil)
			require.NoError(t, err)
			await.True(t, func() bool { // a collection waits for the server's answer for a second
				now := recorded(t, metrics)
				return now["order default"] >= before["order default"]+3 && now["parcel t1"] > before["parcel t1"]
			}, "the server says what was committed")
			require.Equal(t, before["order default"]+3, recorded(t, metrics)["order default"], "an event that repeats another one is none")
			require.Equal(t, before["parcel t1"]+1, recorded(t, metrics)["parcel t1"])
		})
	}
}

// recorded is what the metric shows, by topic and tenant.
func recorded(t *testing.T, from *metric.ManualReader) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, from.Collect(t.Context(), &all))
	shown := map[string]int64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != "oncebox.outbox.recorded" {
				continue
			}
			for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
				topic, _ := p.Attributes.Value("topic")
				tenant, _ := p.Attributes.Value("tenant")
				shown[topic.AsString()+" "+tenant.AsString()] = p.Value
			}
		}
	}
	return shown
}
