package idempotency

import (
	"context"

	"github.com/uptrace/bun"
	"go.opentelemetry.io/otel/metric"

	"github.com/oncebox/oncebox/internal/leader"
	"github.com/oncebox/oncebox/internal/otelx"
)

// gauges show the statistics.
type gauges struct {
	all                             *otelx.Gauges
	keys, claimed, unknown, expired metric.Int64ObservableGauge
	age                             metric.Float64ObservableGauge
}

func newGauges(m metric.Meter) *gauges {
	all := otelx.NewGauges(m)
	return &gauges{
		all:     all,
		keys:    all.Count("oncebox.idempotency.keys", "Keys that are remembered; beyond 10,000 an estimate"),
		claimed: all.Count("oncebox.idempotency.claimed", "Keys of requests that are worked on under a lease, or were abandoned"),
		unknown: all.Count("oncebox.idempotency.unknown", "Steps whose outcome nobody knows"),
		expired: all.Count("oncebox.idempotency.expired", "Expired keys that were not removed yet"),
		age:     all.Seconds("oncebox.idempotency.oldest_unknown", "How long ago the first step was begun whose outcome nobody knows"),
	}
}

// Observe shows [Store.Stats] as metrics until ctx is done. Of all processes that call it for one database, only one at a time reads and shows
// them, every 15 seconds.
func (s *Store) Observe(ctx context.Context, db bun.IDB) {
	reader := &leader.Reader[Stats]{
		Name: "idempotency.stats", SQL: s.run, DB: db, Log: s.log,
		Read: func(ctx context.Context) (Stats, error) { return s.Stats(ctx, db) },
	}
	g := s.gauges
	defer g.all.Show(func(_ context.Context, to metric.Observer) error {
		st, ok := reader.Latest()
		if !ok {
			return nil
		}
		to.ObserveInt64(g.keys, st.Keys)
		to.ObserveInt64(g.claimed, int64(st.Claimed))
		to.ObserveInt64(g.unknown, int64(st.Unknown))
		to.ObserveInt64(g.expired, int64(st.Expired))
		to.ObserveFloat64(g.age, st.OldestUnknown.Seconds())
		return nil
	})()
	reader.Run(ctx)
}
