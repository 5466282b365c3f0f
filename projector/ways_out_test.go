package projector_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/projector"
)

// tally is a publisher that counts its calls, and the calls of which it confirmed an event.
type tally struct {
	*recorder

	mu        sync.Mutex
	calls     int
	confirmed int
}

func (c *tally) Publish(ctx context.Context, msgs []event.Envelope) error {
	err := c.recorder.Publish(ctx, msgs)
	partial, _ := errors.AsType[*messaging.PublishError](err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	if err == nil || partial != nil && len(partial.Failed) < len(msgs) {
		c.confirmed++
	}
	return err
}

// A way is one by which an event leaves. Each of them is counted once in each metric, and has one span.
func TestEachWayOutIsCountedOnce(t *testing.T) {
	t.Parallel()
	trouble := &messaging.TopicError{Topic: "order", Err: errors.New("terminated")}
	dueNow := func(f *fixture) {
		_, err := f.db.Exec("UPDATE outbox_held SET retry_after = now() WHERE retry_after < 'infinity'")
		require.NoError(f.t, err)
	}
	for name, way := range map[string]struct {
		before func(f *fixture)   // while no projector runs
		fails  map[string][]error // what the broker answers first, by type of event
		events int                // that leave
		tried  int                // events that leave after they were refused
		stays  int                // how often the topic was the reason why an event did not leave
	}{
		"in a batch": {before: func(f *fixture) { f.add("a", "a1"); f.add("b", "b1") }, events: 2},
		"in part of a batch": {
			before: func(f *fixture) { f.add("a", "a1"); f.add("b", "b1") }, fails: map[string][]error{"a1": {errNotNow}}, events: 2, tried: 1,
		},
		"after it was refused":  {before: func(f *fixture) { f.refused("a"); dueNow(f) }, events: 1, tried: 1},
		"behind a refused one":  {before: func(f *fixture) { f.refused("a"); f.add("a", "a2"); dueNow(f) }, events: 2, tried: 1},
		"delayed":               {before: func(f *fixture) { f.add("a", "a1", event.WithNotBefore(time.Now().Add(50*time.Millisecond))) }, events: 1},
		"isolated":              {before: func(f *fixture) { f.add("a", "a1"); f.vanished() }, events: 1},
		"isolated, one by one":  {before: func(f *fixture) { f.add("a", "a1"); f.add("a", "a2"); f.vanished(); f.counted("outbox") }, events: 2},
		"refused, and isolated": {before: func(f *fixture) { f.refused("a"); dueNow(f); f.vanished(); f.counted("outbox_held") }, events: 1, tried: 1},
		"as a probe":            {before: func(f *fixture) { f.add("a", "a1") }, fails: map[string][]error{"a1": {trouble}}, events: 1, stays: 1},
		"as a probe that failed": {
			before: func(f *fixture) { f.add("a", "a1") }, fails: map[string][]error{"a1": {trouble, trouble}}, events: 1, stays: 2,
		},
		"refused, and as a probe": {
			before: func(f *fixture) { f.refused("a"); dueNow(f) }, fails: map[string][]error{"a-1": {trouble}}, events: 1, tried: 1, stays: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			way.before(f)
			f.pub.refuseWith(func(e event.Envelope) (err error) {
				if left := way.fails[e.Type]; len(left) > 0 {
					err, way.fails[e.Type] = left[0], left[1:]
				}
				return err
			})
			m := f.measured()
			p := f.relay(m.pub, m.cfg, f.store)
			stop := f.run(p)
			f.eventually("all are sent", f.allSent)
			stop()
			m.require(t, way.events, way.tried)
			require.EqualValues(t, way.stays, counter(t, m.reader, "oncebox.outbox.unconfirmed"), "unconfirmed")
			require.Equal(t, way.stays > 0, m.log.Count(topicPaused) > 0, "only a probe frees the topic")
		})
	}
}

// The rows of a transaction that was open for long leave by a scan, in several batches.
func TestLateRowsAreCountedOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.measured()
	m.cfg.Renew, m.cfg.BatchSize = 20*time.Millisecond, 2
	f.add("b", "b0")
	long, err := f.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = long.Rollback() })
	const slow = 7
	for i := range int64(slow) {
		_, err = f.store.Add(t.Context(), long, "order", []byte("slow"), event.WithAggregate("order", "a", i+1), event.WithType("slow"))
		require.NoError(t, err)
	}
	stop := f.run(f.relay(m.pub, m.cfg, f.store))
	added := 1
	f.eventually("fetches take a shortcut", func() bool {
		added++
		f.add("b", "b")
		return f.rows("outbox_lane WHERE open_to > 0") > 0
	})
	require.NoError(t, long.Commit())
	f.eventually("all are sent", func() bool { return f.pub.total() == added+slow && f.allSent() })
	stop()
	m.require(t, added+slow, 0)
}

// counted gives the rows of a table one crash, as if a projector had died while it sent them one by one.
func (f *fixture) counted(table string) {
	f.t.Helper()
	_, err := f.db.Exec("UPDATE " + table + " SET crashes = 1")
	require.NoError(f.t, err)
}

// measures are the metrics and spans of one projector, and the calls of its publisher.
type measures struct {
	cfg    projector.Config
	pub    *tally
	reader *metric.ManualReader
	spans  *tracetest.InMemoryExporter
	log    *logbook.Book
}

func (f *fixture) measured() *measures {
	m := &measures{
		cfg: quick(), pub: &tally{recorder: f.pub}, reader: metric.NewManualReader(), spans: tracetest.NewInMemoryExporter(), log: &logbook.Book{},
	}
	m.cfg.Workers = 1
	m.cfg.Telemetry.MeterProvider = metric.NewMeterProvider(metric.WithReader(m.reader))
	m.cfg.Telemetry.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSyncer(m.spans))
	m.cfg.Telemetry.Logger = m.log.Logger()
	return m
}

// require compares the metrics with the calls that the publisher saw.
func (m *measures) require(t *testing.T, events, tried int) {
	t.Helper()
	_, recorded := shown(t, m.reader)
	require.EqualValues(t, events, counter(t, m.reader, "oncebox.outbox.published"), "published")
	require.EqualValues(t, m.pub.calls, recorded["oncebox.outbox.publish.latency"], "latency")
	require.EqualValues(t, m.pub.confirmed, recorded["oncebox.outbox.lag"], "lag")
	require.EqualValues(t, tried, recorded["oncebox.outbox.attempts published"], "attempts")
	require.Len(t, m.spans.GetSpans(), m.pub.calls, "spans")
	require.Zero(t, counter(t, m.reader, "oncebox.outbox.inflight"), "in flight")
}
