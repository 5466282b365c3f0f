package projector_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/projector"
)

// shown returns the gauges that a reader sees, summed up by name, and how many points the histograms have.
func shown(t *testing.T, r metric.Reader) (gauges map[string]float64, recorded map[string]uint64) {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, r.Collect(context.Background(), &all))
	gauges, recorded = map[string]float64{}, map[string]uint64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					gauges[m.Name] += float64(p.Value)
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					gauges[m.Name] += p.Value
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					recorded[m.Name] += p.Count
				}
			case metricdata.Histogram[int64]:
				for _, p := range data.DataPoints {
					outcome, _ := p.Attributes.Value("outcome")
					recorded[m.Name+" "+outcome.AsString()] += p.Count
				}
			}
		}
	}
	return gauges, recorded
}

// Each refusal counts: a permanent one, and the last one of several.
func TestEachRefusalIsCounted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	reader := metric.NewManualReader()
	cfg := quick()
	cfg.MaxRetryAttempts, cfg.Telemetry.MeterProvider = 3, metric.NewMeterProvider(metric.WithReader(reader))
	f.pub.refuseWith(func(e event.Envelope) error {
		if e.Type == "poison" {
			return messaging.Permanent(errors.New("no schema"))
		}
		return errors.New("not now")
	})
	f.add("a", "poison")
	p := f.projector(cfg)
	require.NoError(t, p.RunOnce(t.Context()))
	require.EqualValues(t, 1, counter(t, reader, "oncebox.outbox.refused"))
	f.add("b", "refused")
	f.eventually("both are dead", func() bool {
		require.NoError(t, p.RunOnce(t.Context()))
		return counter(t, reader, "oncebox.outbox.died") == 2
	})
	require.EqualValues(t, 4, counter(t, reader, "oncebox.outbox.refused"))
}

// Of two projectors one shows the state, and the other one when that has stopped. What is shown is what waits: an event behind a dead letter
// is as old as it is, and a delayed one has no age.
func TestOneProjectorShowsTheState(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.pub.refuseWith(func(e event.Envelope) error {
		switch e.Type {
		case "poison":
			return messaging.Permanent(errors.New("no schema"))
		case "refused":
			return errors.New("not now")
		default:
			return nil
		}
	})
	readers := map[string]*metric.ManualReader{}
	run := func(name string) (stop func()) {
		readers[name] = metric.NewManualReader()
		cfg := patient()
		cfg.Name, cfg.Telemetry.MeterProvider = name, metric.NewMeterProvider(metric.WithReader(readers[name]))
		p := f.projector(cfg)
		projector.ObserveOften(p)
		return f.run(p)
	}
	stop := run("a")
	f.eventually("a reads", func() bool { gauges, _ := shown(t, readers["a"]); return len(gauges) > 0 })
	run("b")
	f.add("k1", "poison")
	f.add("k1", "behind")
	f.add("k2", "refused")
	f.add("k3", "published")
	f.add("k4", "reminder", event.WithNotBefore(time.Now().Add(240*time.Hour)))
	settled := func() bool {
		st, err := f.store.State().Stats(t.Context())
		return err == nil && st.Dead == 1 && st.Failed == 1 && st.Held == 2 && st.Delayed == 1 && st.New == 0
	}
	f.eventually("one is dead, one failed, one waits behind it, one is delayed", settled)
	_, err := f.db.Exec("UPDATE outbox_held SET created_at = created_at - interval '1 hour' WHERE event_type = 'behind'")
	require.NoError(t, err)

	names := []string{
		"backlog", "new", "held", "failed", "max_tries", "delayed", "blocked", "dead", "sent", "lanes", "oldest_age", "partitions_missing", "oldest_snapshot",
		"paused", "tenants_paused",
	}
	f.eventually("a shows it", func() bool {
		gauges, _ := shown(t, readers["a"])
		return gauges["oncebox.outbox.oldest_age"] > 3600 && gauges["oncebox.outbox.oldest_age"] < 7200 &&
			gauges["oncebox.outbox.dead"] == 1 && gauges["oncebox.outbox.held"] == 2 && gauges["oncebox.outbox.failed"] == 1 &&
			gauges["oncebox.outbox.delayed"] == 1 && gauges["oncebox.outbox.blocked"] == 2 && gauges["oncebox.outbox.lanes"] == 64 &&
			len(gauges) == len(names)
	})
	other, _ := shown(t, readers["b"])
	require.Empty(t, other, "it is read once")
	stop()
	f.eventually("b shows it", func() bool {
		gauges, _ := shown(t, readers["b"])
		return gauges["oncebox.outbox.dead"] == 1
	})
	gone, _ := shown(t, readers["a"])
	require.Empty(t, gone, "nothing old is shown")

	recorded := map[string]uint64{}
	for _, r := range readers {
		_, of := shown(t, r)
		for name, n := range of {
			recorded[name] += n
		}
	}
	require.NotZero(t, recorded["oncebox.outbox.publish.latency"])
	require.EqualValues(t, 1, recorded["oncebox.outbox.lag"], "one batch had an event that the broker took")
	require.EqualValues(t, 1, recorded["oncebox.outbox.attempts dead"])
	require.Zero(t, recorded["oncebox.outbox.attempts published"])
	f.pub.refuseWith(nil)
	_, err = f.store.Dead().ReplayAll(t.Context(), operator.DeadFilter{}, operator.By{Actor: "ann"}, nil)
	require.NoError(t, err)
	_, err = f.db.Exec("UPDATE outbox_held SET retry_after = clock_timestamp() WHERE event_type = 'refused'")
	require.NoError(t, err)
	f.eventually("the refused one is tried again", func() bool {
		_, of := shown(t, readers["b"])
		return of["oncebox.outbox.attempts published"] == 1
	})
}

// Rows that the broker has and has not confirmed are in flight, and no others.
func TestInFlight(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	reader := metric.NewManualReader()
	cfg := patient()
	cfg.Telemetry.MeterProvider = metric.NewMeterProvider(metric.WithReader(reader))
	arrived, confirm := make(chan struct{}), make(chan struct{})
	f.pub.refuseWith(func(event.Envelope) error {
		arrived <- struct{}{}
		<-confirm
		return nil
	})
	f.run(f.projector(cfg))
	f.add("k1", "e1")
	<-arrived
	require.EqualValues(t, 1, counter(t, reader, "oncebox.outbox.inflight"))
	close(confirm)
	f.eventually("it is settled", func() bool { return f.statuses()["e1"] == "SENT" })
	f.eventually("none is in flight", func() bool { return counter(t, reader, "oncebox.outbox.inflight") == 0 })
}

// A state that could not be read again is not shown any more.
func TestOldStateIsNotShown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	reader := metric.NewManualReader()
	cfg := patient()
	cfg.Telemetry.MeterProvider = metric.NewMeterProvider(metric.WithReader(reader))
	p := f.projector(cfg)
	projector.ObserveOften(p)
	f.run(p)
	f.eventually("it is shown", func() bool { gauges, _ := shown(t, reader); return len(gauges) > 0 })
	_, err := f.db.Exec("ALTER TABLE outbox_dead RENAME COLUMN topic TO subject")
	require.NoError(t, err)
	f.eventually("it is not", func() bool { gauges, _ := shown(t, reader); return len(gauges) == 0 })
	_, err = f.db.Exec("ALTER TABLE outbox_dead RENAME COLUMN subject TO topic")
	require.NoError(t, err)
	f.eventually("it is again", func() bool { gauges, _ := shown(t, reader); return len(gauges) > 0 })
}
