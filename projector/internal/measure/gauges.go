package measure

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/oncebox/oncebox/internal/otelx"
	outboxstate "github.com/oncebox/oncebox/outbox/state"
)

// Gauges show the state of the outboxes that a projector relays: the sums over all of them, and the highest age. Of
// all projectors that are alive, one reads an outbox, see leader.Reader, and only this one shows it. So sums over all
// processes are right.
type Gauges struct {
	all *otelx.Gauges

	backlog, dead, fresh, held, failed, delayed, blocked,
	sent, tries, lanes, partitions, paused, tenants metric.Int64ObservableGauge
	age, snapshot metric.Float64ObservableGauge
}

func newGauges(m metric.Meter) *Gauges {
	all := otelx.NewGauges(m)
	return &Gauges{
		all:        all,
		backlog:    all.Count("oncebox.outbox.backlog", "Events that should be published, by topic and tenant; the 50 largest, and other"),
		dead:       all.Count("oncebox.outbox.dead", "Dead letters, by topic and tenant; the 50 largest, and other"),
		age:        all.Seconds("oncebox.outbox.oldest_age", "Age of the oldest event that is due and not published"),
		fresh:      all.Count("oncebox.outbox.new", "Events that wait for their first try, or are on their way"),
		held:       all.Count("oncebox.outbox.held", "Events that were refused, or wait behind a refused or dead event of their key"),
		failed:     all.Count("oncebox.outbox.failed", "Events that were refused and are tried again"),
		tries:      all.Count("oncebox.outbox.max_tries", "Highest number of refusals of one event that waits"),
		delayed:    all.Count("oncebox.outbox.delayed", "Delayed events whose time has not come yet"),
		paused:     all.Count("oncebox.outbox.paused", "Events that wait because an operator has paused their tenant"),
		tenants:    all.Count("oncebox.outbox.tenants_paused", "Tenants that an operator has paused"),
		blocked:    all.Count("oncebox.outbox.blocked", "Keys whose first event failed or is dead"),
		sent:       all.Count("oncebox.outbox.sent", "Published events that are kept; an estimate"),
		lanes:      all.Count("oncebox.outbox.lanes", "Lanes, by state: owned or free"),
		partitions: all.Count("oncebox.outbox.partitions_missing", "Missing partitions for today and tomorrow"),
		snapshot:   all.Seconds("oncebox.outbox.oldest_snapshot", "Age of the oldest transaction that keeps VACUUM from removing rows"),
	}
}

// Show makes the gauges visible until stop is called. latest returns the sum of the states that were read last. If it
// returns false, this projector reads no outbox, and shows nothing.
func (g *Gauges) Show(latest func() (outboxstate.Stats, bool)) (stop func()) {
	// A callback that observes nothing makes the series end. Values of an earlier read would look like the present state.
	return g.all.Show(func(_ context.Context, to metric.Observer) error {
		if sum, read := latest(); read {
			g.show(to, &sum)
		}
		return nil
	})
}

func (g *Gauges) show(to metric.Observer, sum *outboxstate.Stats) {
	to.ObserveFloat64(g.age, sum.OldestAge.Seconds())
	to.ObserveFloat64(g.snapshot, sum.SnapshotAge.Seconds())
	to.ObserveInt64(g.fresh, sum.New)
	to.ObserveInt64(g.held, sum.Held)
	to.ObserveInt64(g.failed, sum.Failed)
	to.ObserveInt64(g.tries, int64(sum.MostTries))
	to.ObserveInt64(g.delayed, sum.Delayed)
	to.ObserveInt64(g.paused, sum.Paused)
	to.ObserveInt64(g.tenants, int64(sum.TenantsPaused))
	to.ObserveInt64(g.blocked, sum.Blocked)
	to.ObserveInt64(g.sent, sum.Sent)
	to.ObserveInt64(g.partitions, int64(sum.PartitionsMissing))
	to.ObserveInt64(g.lanes, int64(sum.Lanes-sum.FreeLanes), metric.WithAttributes(attribute.String("state", "owned")))
	to.ObserveInt64(g.lanes, int64(sum.FreeLanes), metric.WithAttributes(attribute.String("state", "free")))
	g.showShares(to, sum.Shares)
}

// showShares names the largest shares and adds up the others, which keeps the number of series bounded. Shares are
// sorted by their size. The series of the others always exists, so that an alert can distinguish an empty outbox from
// an outbox that no projector reads.
func (g *Gauges) showShares(to metric.Observer, shares []outboxstate.Share) {
	rest := outboxstate.Share{Topic: otelx.Other, Tenant: otelx.Other}
	for n, s := range shares {
		if n >= otelx.MaxSeries || s.Topic == otelx.Other && s.Tenant == otelx.Other {
			rest.New, rest.Held, rest.Dead = rest.New+s.New, rest.Held+s.Held, rest.Dead+s.Dead
			continue
		}
		series := otelx.TopicAndTenant(s.Topic, s.Tenant)
		to.ObserveInt64(g.backlog, s.New+s.Held, series)
		to.ObserveInt64(g.dead, s.Dead, series)
	}
	series := otelx.TopicAndTenant(rest.Topic, rest.Tenant)
	to.ObserveInt64(g.backlog, rest.New+rest.Held, series)
	to.ObserveInt64(g.dead, rest.Dead, series)
}
