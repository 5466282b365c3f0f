package inbox

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/oncebox/oncebox/internal/backoff"
)

// Stats is what an operator looks at first, of one consumer. Each count goes up to 10,000.
type Stats struct {
	Consumer string
	// Waiting, Failed and Dead are the keys that do not flow, by their state. A message without order is a key of its own.
	Waiting, Failed, Dead int
	// Parked messages, and for how long the oldest of them has waited.
	Parked       int
	OldestParked time.Duration
	// DeadLetters are those that hold their key, which is Dead then, and the others.
	DeadLetters int
}

// statistics visits each consumer once, by the indexes, and bounded numbers of its rows: a count over a backlog of millions
// would be the load that it is meant to show. The oldest message is the first one of a key.
const statistics = `
WITH RECURSIVE stopped (consumer) AS (
	SELECT min(consumer) FROM {schema}.inbox_key
	UNION ALL SELECT (SELECT min(k.consumer) FROM {schema}.inbox_key k WHERE k.consumer > s.consumer) FROM stopped s WHERE s.consumer IS NOT NULL
), bereft (consumer) AS (
	SELECT min(consumer) FROM {schema}.inbox_dead
	UNION ALL SELECT (SELECT min(d.consumer) FROM {schema}.inbox_dead d WHERE d.consumer > b.consumer) FROM bereft b WHERE b.consumer IS NOT NULL
)
SELECT c.consumer, k.waiting, k.failed, k.dead,
	(SELECT count(*) FROM (SELECT FROM {schema}.inbox_parked p WHERE p.consumer = c.consumer LIMIT 10000) x),
	coalesce(extract(epoch FROM clock_timestamp() - k.oldest), 0)::float8,
	(SELECT count(*) FROM (SELECT FROM {schema}.inbox_dead d WHERE d.consumer = c.consumer LIMIT 10000) x)
FROM (SELECT consumer FROM stopped UNION SELECT consumer FROM bereft) c
CROSS JOIN LATERAL (
	SELECT count(*) FILTER (WHERE x.state = 'WAITING') AS waiting, count(*) FILTER (WHERE x.state = 'FAILED') AS failed,
		count(*) FILTER (WHERE x.state = 'DEAD') AS dead, min(x.parked_at) AS oldest
	FROM (SELECT k.state, p.parked_at FROM {schema}.inbox_key k LEFT JOIN LATERAL (
			SELECT p.parked_at FROM {schema}.inbox_parked p WHERE p.consumer = k.consumer AND p.key_lock = k.key_lock ORDER BY p.seq LIMIT 1) p ON true
		WHERE k.consumer = c.consumer LIMIT 10000) x
) k
WHERE c.consumer IS NOT NULL ORDER BY c.consumer`

// Stats reads the state of all consumers that have something parked or dead, by their names.
func (i *Inbox) Stats(ctx context.Context) ([]Stats, error) {
	rows, err := i.patient.Query(ctx, i.units.DB(ctx), statistics)
	if err != nil {
		return nil, wrapErr("read statistics", err)
	}
	defer rows.Close()
	var list []Stats
	for rows.Next() {
		var st Stats
		var age float64
		if err := rows.Scan(&st.Consumer, &st.Waiting, &st.Failed, &st.Dead, &st.Parked, &age, &st.DeadLetters); err != nil {
			return nil, wrapErr("read statistics", err)
		}
		st.OldestParked = seconds(age)
		list = append(list, st)
	}
	return list, wrapErr("read statistics", rows.Err())
}

// gauges show the statistics as metrics.
type gauges struct {
	parked, keys, dead metric.Int64Gauge
}

func newGauges(m metric.Meter) *gauges {
	gauge := func(name, description string) metric.Int64Gauge {
		g, err := m.Int64Gauge(name, metric.WithDescription(description))
		if err != nil {
			otel.Handle(err)
		}
		if g == nil {
			return noop.Int64Gauge{}
		}
		return g
	}
	return &gauges{
		parked: gauge("oncebox.inbox.parked", "Messages that wait in the database, by consumer"),
		keys:   gauge("oncebox.inbox.keys", "Keys that do not flow, by consumer and state"),
		dead:   gauge("oncebox.inbox.dead", "Dead letters, by consumer"),
	}
}

func (g *gauges) show(ctx context.Context, states map[string]Stats) {
	for name, st := range states {
		consumer := attribute.String("consumer", name)
		g.parked.Record(ctx, int64(st.Parked), metric.WithAttributes(consumer))
		g.dead.Record(ctx, int64(st.DeadLetters), metric.WithAttributes(consumer))
		for state, n := range map[string]int{"waiting": st.Waiting, "failed": st.Failed, "dead": st.Dead} {
			g.keys.Record(ctx, int64(n), metric.WithAttributes(consumer, attribute.String("state", state)))
		}
	}
}

// statsInterval is how often the statistics are read for the metrics.
const statsInterval = 15 * time.Second

// observe shows the statistics until ctx is done.
func (i *Inbox) observe(ctx context.Context) {
	states := map[string]Stats{}
	for {
		list, err := i.Stats(ctx)
		if err == nil {
			i.gauges.show(ctx, i.next(states, list))
		} else if ctx.Err() == nil {
			i.log.WarnContext(ctx, "oncebox: the state of the inbox could not be read for the metrics", "pause", statsInterval, "error", err)
		}
		if backoff.Wait(ctx, backoff.Jitter(statsInterval)) != nil {
			return
		}
	}
}

// next replaces the states by those of the list. A consumer that has nothing more stays, with zeros: a gauge shows its last
// value for ever. The generations of a projection are one.
func (i *Inbox) next(states map[string]Stats, list []Stats) map[string]Stats {
	for name := range states {
		states[name] = Stats{}
	}
	for _, name := range i.consumers() {
		states[family(name)] = Stats{}
	}
	for _, st := range list {
		all := states[family(st.Consumer)]
		all.Waiting, all.Failed, all.Dead = all.Waiting+st.Waiting, all.Failed+st.Failed, all.Dead+st.Dead
		all.Parked, all.DeadLetters = all.Parked+st.Parked, all.DeadLetters+st.DeadLetters
		states[family(st.Consumer)] = all
	}
	return states
}
