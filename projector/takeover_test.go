package projector_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/nightly"
	"github.com/oncebox/oncebox/outbox"
)

// counter returns the sum of a counter as read now.
func counter(t *testing.T, r metric.Reader, name string) (sum int64) {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, r.Collect(context.Background(), &all))
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if data, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == name {
				for _, p := range data.DataPoints {
					sum += p.Value
				}
			}
		}
	}
	return sum
}

// A projector that hangs in the broker for longer than its lease loses its lanes. Its later settle is fenced, and the
// rows that it had on their way are sent a second time, under the same ids.
func TestOwnerThatLostItsLanesSettlesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	g := &gate{recorder: f.pub, entered: make(chan struct{}, 1), open: make(chan struct{})}
	id := f.add("a", "slow")
	f.add("a", "next")
	reader := metric.NewManualReader()
	cfg := quick()
	cfg.Name, cfg.Telemetry.MeterProvider = "frozen", metric.NewMeterProvider(metric.WithReader(reader))
	cfg.Lease, cfg.Renew = 2*time.Hour, time.Hour // frozen: it does not renew, and gets no answers
	frozen := f.relay(g, cfg, outbox.NewStore(f.db.DB, &outbox.Config{Source: "test", PollOnly: true}))
	f.run(frozen)
	t.Cleanup(g.release)
	<-g.entered

	_, err := f.db.Exec("DELETE FROM outbox_projector")
	require.NoError(t, err)
	require.NoError(t, f.changeLanes("lease_until = '-infinity'"))
	cfg = quick()
	cfg.Name = "successor"
	require.NoError(t, f.projector(cfg).RunOnce(t.Context()))
	require.Equal(t, []string{"slow", "next"}, f.pub.types())

	g.release()
	f.eventually("the frozen one is fenced", func() bool { return counter(t, reader, "oncebox.outbox.fenced") > 0 })
	require.Equal(t, map[string]string{"slow": "SENT", "next": "SENT"}, f.statuses())
	f.eventually("the second copy is out", func() bool { return f.pub.total() >= 3 })
	require.Equal(t, id, f.pub.events()[2].ID)
}

// A projector that renews once an hour takes the lanes of another when their leases end, not at its next renewal. The other
// may have said that it is alive and not have come to renew them.
func TestLanesAreTakenWhenTheirLeasesEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ seen, lease time.Duration }{
		"seen for longer":   {time.Second, 500 * time.Millisecond},
		"leased for longer": {500 * time.Millisecond, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			_, err := lanedb.Of(f.store.Handle()).Leases.Heartbeat(t.Context(), "dead", 0, c.seen)
			require.NoError(t, err)
			dead, err := lanedb.Of(f.store.Handle()).Leases.Claim(t.Context(), "dead", 0, 64, c.lease)
			require.NoError(t, err)
			require.Len(t, dead, 64)
			cfg := quick()
			cfg.Lease, cfg.Renew = 2*time.Hour, time.Hour
			f.run(f.projector(cfg))
			f.eventually("all of them are taken", func() bool { return f.rows("outbox_lane WHERE owner = 'dead'") == 0 })
			f.add("a", "stranded")
			f.eventually("it is published", f.published("stranded"))
		})
	}
}

// Writers that hold their rows for a while before they commit, or roll back, while a relay with a low-water mark runs:
// what was committed is sent, all of it and nothing else, in order per key.
func TestLateCommitsAreNotSkipped(t *testing.T) {
	for seed := range nightly.Seeds(t, 1, 3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { commitLate(t, throws(seed, 0)) })
	}
}

func commitLate(t *testing.T, d *dice) {
	f := newFixture(t)
	cfg := quick()
	cfg.BatchSize = 20
	f.run(f.projector(cfg))

	ctx := context.Background()
	var mu sync.Mutex
	var committed []string
	write := func(key string, version int64) error {
		tx, err := f.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // else the others would wait for its locks and its connection
		id, err := f.store.Add(ctx, tx, "order", []byte(key), event.WithAggregate("order", key, version), event.WithType(key))
		if err != nil {
			return err
		}
		if d.oneOf(2) {
			<-time.After(d.upTo(300 * time.Millisecond)) // while others commit higher numbers
		}
		if d.oneOf(10) {
			return tx.Rollback()
		}
		mu.Lock()
		committed = append(committed, id)
		mu.Unlock()
		return tx.Commit()
	}
	var writers errgroup.Group
	for writer := range 6 {
		writers.Go(func() error {
			for n := range nightly.N(15, 40) {
				if err := write(fmt.Sprintf("w%d-%d", writer, n%5), int64(n+1)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, writers.Wait())
	f.eventually("all are sent", func() bool { return f.pub.total() >= len(committed) })
	var sent []string
	version := map[string]int64{}
	for _, m := range f.pub.events() {
		sent = append(sent, m.ID)
		require.Greater(t, m.AggregateVersion, version[m.AggregateID], "order of %s", m.AggregateID)
		version[m.AggregateID] = m.AggregateVersion
	}
	require.ElementsMatch(t, committed, sent)
}

// A settle that is refused puts its lane in doubt. The rest of the pass goes on with the other lanes: here a held row is published
// before the next fetch.
func TestLaneInDoubtStopsNoOther(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, err := f.db.Exec(`INSERT INTO outbox (id, occurred_at, lane, tenant_id, topic, event_type, source, payload)
		VALUES (gen_random_uuid(), now(), 3, 'a', 'order', 'held too', 'test', 'x'), (gen_random_uuid(), now(), 4, 'a', 'order', 'held', 'test', 'x')`)
	require.NoError(t, err)
	_, err = f.db.Exec(`WITH gone AS (DELETE FROM outbox RETURNING *) INSERT INTO outbox_held SELECT *, now() FROM gone`)
	require.NoError(t, err)
	_, err = f.db.Exec(`INSERT INTO outbox (id, occurred_at, lane, tenant_id, topic, event_type, source, payload)
		VALUES (gen_random_uuid(), now(), 3, 'a', 'order', 'fresh', 'test', 'x')`)
	require.NoError(t, err)
	var fetches, before atomic.Int32
	store := f.through(func(statement string, _ bool) {
		if strings.Contains(statement, "ORDER BY x.seq LIMIT c.quota") {
			fetches.Add(1)
		}
	}, nil)
	f.pub.refuse = func(e event.Envelope) error {
		switch e.Type {
		case "held":
			before.Store(fetches.Load())
		case "fresh":
			_, err := f.db.Exec("UPDATE outbox_lane SET epoch = epoch + 1 WHERE lane = 3")
			return err
		}
		return nil
	}
	cfg := quick()
	cfg.Workers = 1
	require.NoError(t, f.relay(f.pub, cfg, store).RunOnce(t.Context()))
	require.Contains(t, f.pub.types(), "held")
	require.EqualValues(t, 1, before.Load())
}
