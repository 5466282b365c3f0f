package state

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/history"
	"github.com/oncebox/oncebox/internal/leader"
	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
)

// gauges shows the statistics of the consumers as metrics. Of all processes that run inbox.Inbox.RunParked only one reads and shows them,
// see leader.Reader.
type gauges struct {
	all                *otelx.Gauges
	parked, keys, dead metric.Int64ObservableGauge
	age                metric.Float64ObservableGauge

	waiting, processes, paused metric.Int64ObservableGauge
	away, stands, late         metric.Float64ObservableGauge
}

func newGauges(m metric.Meter) *gauges {
	all := otelx.NewGauges(m)
	return &gauges{
		all:    all,
		parked: all.Count("oncebox.inbox.parked", "Messages that wait in the database, by consumer"),
		keys:   all.Count("oncebox.inbox.keys", "Keys that do not flow, by consumer and state"),
		dead:   all.Count("oncebox.inbox.dead", "Dead letters, by consumer"),
		age:    all.Seconds("oncebox.inbox.oldest_age", "How long the oldest parked message has waited, by consumer"),

		waiting:   all.Count("oncebox.inbox.backlog", "Messages that wait at the broker, by consumer and topic, whether a process runs it or not"),
		late:      all.Seconds("oncebox.inbox.backlog_age", "How long the oldest message has waited at the broker, by consumer and topic"),
		processes: all.Count("oncebox.inbox.processes", "Processes that run a consumer, by topic and state"),
		paused:    all.Count("oncebox.inbox.paused", "1 for a consumer that an operator has paused, else 0, by consumer"),
		away:      all.Seconds("oncebox.inbox.away", "For how long no process has been connected, by consumer and topic"),
		stands:    all.Seconds("oncebox.inbox.standstill", "For how long messages have waited at the broker and none was settled, by consumer and topic"),
	}
}

// show observes states, by the names of their consumers.
func (g *gauges) show(to metric.Observer, states map[string]Stats) {
	for name, st := range states {
		consumer := attribute.String("consumer", name)
		to.ObserveInt64(g.parked, int64(st.Parked), metric.WithAttributes(consumer))
		to.ObserveInt64(g.dead, int64(st.DeadLetters), metric.WithAttributes(consumer))
		to.ObserveFloat64(g.age, st.OldestParked.Seconds(), metric.WithAttributes(consumer))
		for state, n := range map[string]int{"waiting": st.Waiting, "failed": st.Failed, "dead": st.Dead} {
			to.ObserveInt64(g.keys, int64(n), metric.WithAttributes(consumer, attribute.String("state", state)))
		}
	}
}

// showConsumers observes the state of the consumers at their topics. Without an answer of the broker there are no series about waiting
// messages.
func (g *gauges) showConsumers(to metric.Observer, list []Consumer) {
	for n := range list {
		c := &list[n]
		paused := int64(0)
		if c.Pause.IsSet() {
			paused = 1
		}
		to.ObserveInt64(g.paused, paused, metric.WithAttributes(attribute.String("consumer", c.Consumer)))
		for m := range c.Topics {
			t := &c.Topics[m]
			labels := []attribute.KeyValue{attribute.String("consumer", c.Consumer), attribute.String("topic", t.Topic)}
			to.ObserveFloat64(g.away, c.away(t).Seconds(), metric.WithAttributes(labels...))
			counts := map[string]int64{"connected": 0, partly: 0, "away": 0, "paused": 0, "stored": 0}
			// All states have a series, also at 0, so that an alert can compare with 0 and does not miss a
			// series that is absent.
			for _, p := range t.Processes {
				counts[p.State]++
			}
			for state, count := range counts {
				to.ObserveInt64(g.processes, count, metric.WithAttributes(append(labels[:2:2], attribute.String("state", state))...))
			}
			if !t.Waiting.Known {
				continue
			}
			stands := time.Duration(0)
			if !t.Waiting.Stands.IsZero() {
				stands = c.now.Sub(t.Waiting.Stands)
			}
			to.ObserveInt64(g.waiting, t.Waiting.Messages, metric.WithAttributes(labels...))
			to.ObserveFloat64(g.stands, stands.Seconds(), metric.WithAttributes(labels...))
			if t.Waiting.Messages == 0 || !t.Waiting.Oldest.IsZero() {
				to.ObserveFloat64(g.late, t.Waiting.Late().Seconds(), metric.WithAttributes(labels...))
			}
		}
	}
}

// Observe shows the statistics as metrics, until ctx is done. Only one process of all does so at a time; the others wait. own returns the
// consumers of this process. It is a part of inbox.Inbox.RunParked.
func (r *Reader) Observe(ctx context.Context, own func() []string) {
	writer := r.writer()
	reader := &leader.Reader[[]Stats]{
		Name: "inbox.stats", SQL: r.h.Patient, DB: r.h.DB(ctx), Log: r.h.Log,
		Read: func(ctx context.Context) ([]Stats, error) { return r.keep(ctx, writer) },
	}
	defer r.gauges.all.Show(func(_ context.Context, to metric.Observer) error {
		if list, ok := reader.Latest(); ok {
			r.gauges.show(to, byName(list, own()))
		}
		return nil
	})()
	reader.Run(ctx)
}

// byName returns the statistics of the consumers in the list, and zeros for the other consumers of this process, so that a series exists
// before it is needed. The generations of a read model are added up.
func byName(list []Stats, own []string) map[string]Stats {
	states := map[string]Stats{}
	for _, name := range own {
		states[store.Family(name)] = Stats{}
	}
	for _, st := range list {
		all := states[store.Family(st.Consumer)]
		all.Waiting, all.Failed, all.Dead = all.Waiting+st.Waiting, all.Failed+st.Failed, all.Dead+st.Dead
		all.Parked, all.DeadLetters = all.Parked+st.Parked, all.DeadLetters+st.DeadLetters
		all.OldestParked, all.Counted = max(all.OldestParked, st.OldestParked), max(all.Counted, st.Counted)
		states[store.Family(st.Consumer)] = all
	}
	return states
}

// everRun lists the consumers that have run.
const everRun = `SELECT consumer FROM {schema}.inbox_consumer WHERE beat_at IS NOT NULL`

// writer returns a writer of the history of the consumers.
func (r *Reader) writer() *history.Writer {
	return &history.Writer{Part: operator.PartInbox, Run: r.h.Patient, Off: r.h.NoHistory, Log: r.h.Log}
}

// keep is [Reader.Stats]. It also enters what it read into the history, and zeros for all consumers without parked messages and dead letters.
func (r *Reader) keep(ctx context.Context, writer *history.Writer) ([]Stats, error) {
	list, err := r.Stats(ctx)
	if err != nil || writer.Off {
		return list, err
	}
	names, err := pgsql.Collect(r.h.Patient.Query(ctx, r.h.DB(ctx), everRun), func(scan pgsql.Scan, name *string) error { return scan(name) })
	if err != nil {
		writer.Warn(ctx, store.Wrap("list consumers", err))
		return list, nil
	}
	reading := map[string]operator.Figures{}
	for name, st := range byName(list, names) {
		reading[name] = operator.Figures{
			Waiting: operator.Unknown, Parked: int64(st.Parked), Failing: int64(st.Failed), Dead: int64(st.DeadLetters), Oldest: st.OldestParked,
		}
	}
	writer.Note(ctx, r.h.DB(ctx), reading)
	return list, nil
}

// History returns how the messages of each consumer went over the last span, up to 24 hours, by its name, for a read model without its generation. A
// consumer is missing if no process has read its figures, and all are if inbox.Config.NoHistory is set.
func (r *Reader) History(ctx context.Context, span time.Duration) (map[string]operator.History, error) {
	all, err := history.Read(ctx, r.h.AdHoc(), r.h.DB(ctx), operator.PartInbox, span)
	return all, store.Wrap("read the history", err)
}
