package projector

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// instruments measure the work of this projector itself. The state of the tables is shown by gauges.
type instruments struct {
	published, fenced, unconfirmed metric.Int64Counter
	refused, dead                  otelx.TenantCounter
	inFlight                       metric.Int64UpDownCounter
	latency, lag                   metric.Float64Histogram
	attempts                       metric.Int64Histogram
	gauges                         *gauges
}

func newInstruments(provider metric.MeterProvider) *instruments {
	m := otelx.Meter(provider, "projector")
	t := &instruments{
		published:   otelx.Started(m, "oncebox.outbox.published", "Rows that the broker confirmed", nil),
		unconfirmed: otelx.Started(m, "oncebox.outbox.unconfirmed", "Rows left for another try, no attempt spent", nil),
		fenced:      otelx.Started(m, "oncebox.outbox.fenced", "Writes refused because the lane had been lost", nil),
		latency: otelx.Histogram(m, "oncebox.outbox.publish.latency", "How long the broker takes to confirm a batch",
			.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30),
		lag: otelx.Histogram(m, "oncebox.outbox.lag", "From the recording of an event, or its time, to the broker's confirmation: the oldest one of each batch",
			.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600),
		gauges: newGauges(m),
	}
	t.refused.Show(m, "oncebox.outbox.refused", "Refusals of single rows, by topic and tenant", nil)
	t.dead.Show(m, "oncebox.outbox.died", "Rows that were given up, by topic and tenant", nil)
	var err error
	if t.inFlight, err = m.Int64UpDownCounter("oncebox.outbox.inflight",
		metric.WithDescription("Events that the broker has and has not confirmed yet")); err != nil {
		otel.Handle(err)
		t.inFlight = noop.Int64UpDownCounter{}
	}
	if t.attempts, err = m.Int64Histogram("oncebox.outbox.attempts", metric.WithExplicitBucketBoundaries(2, 3, 5, 10, 20, 50),
		metric.WithDescription("Tries of an event that was refused at least once, by outcome: published or dead")); err != nil {
		otel.Handle(err)
		t.attempts = noop.Int64Histogram{}
	}
	return t
}

// took records how long the broker took for a batch, and how long the oldest row that it confirmed had waited. due
// returns the time from which on a row was free to leave.
func (t *instruments) took(ctx context.Context, rows []*outboxdb.Row, errs map[int]error, began time.Time, due func(*outboxdb.Row) time.Time) {
	now := time.Now()
	t.latency.Record(ctx, now.Sub(began).Seconds())
	var oldest time.Time
	for n, r := range rows {
		if errs[n] != nil {
			continue
		}
		if since := due(r); oldest.IsZero() || since.Before(oldest) {
			oldest = since
		}
		if r.RetryCount > 0 {
			t.tried(ctx, r, outcomePublished)
		}
	}
	if !oldest.IsZero() {
		t.lag.Record(ctx, max(0, now.Sub(oldest).Seconds()))
	}
}

// Outcomes of events that were tried more than once.
const (
	outcomePublished = "published"
	outcomeDead      = "dead"
)

func (t *instruments) tried(ctx context.Context, r *outboxdb.Row, outcome string) {
	t.attempts.Record(ctx, int64(r.RetryCount+1), metric.WithAttributes(attribute.String("outcome", outcome)))
}

// gaveUp records a dead letter.
func (t *instruments) gaveUp(ctx context.Context, r *outboxdb.Row) {
	t.dead.Add(1, r.Topic, r.TenantID)
	t.tried(ctx, r, outcomeDead)
}
