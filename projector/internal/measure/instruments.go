package measure

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

// Instruments measure the work of one projector. What its outboxes hold is shown by [Gauges].
type Instruments struct {
	// Fenced counts writes that were refused because the lane had been lost.
	Fenced metric.Int64Counter
	// Gauges show what waits in the outboxes.
	Gauges *Gauges

	published, unconfirmed metric.Int64Counter
	refused, dead          otelx.TenantCounter
	inFlight               metric.Int64UpDownCounter
	latency, lag           metric.Float64Histogram
	attempts               metric.Int64Histogram
}

// New returns the instruments of a projector. The global provider is used if provider is nil.
func New(provider metric.MeterProvider) *Instruments {
	m := otelx.Meter(provider, "projector")
	t := &Instruments{
		published: otelx.Started(m, "oncebox.outbox.published", "Events that the broker has confirmed", nil),
		unconfirmed: otelx.Started(m, "oncebox.outbox.unconfirmed", "Events that are tried again without counting an attempt, because the broker or the "+
			"topic was not available", nil),
		Fenced: otelx.Started(m, "oncebox.outbox.fenced", "Writes to the outbox that were refused, because another relay owned the lane by then", nil),
		latency: otelx.Histogram(m, "oncebox.outbox.publish.latency", "Time until the broker confirms a batch of events",
			.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30),
		lag: otelx.Histogram(m, "oncebox.outbox.lag", "From the recording of an event, or its time, to the broker's confirmation: the oldest one of each batch",
			.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600),
		Gauges: newGauges(m),
	}
	t.refused.Show(m, "oncebox.outbox.refused", "Single events that the broker refused, by topic and tenant", nil)
	t.dead.Show(m, "oncebox.outbox.died", "Events that became dead letters, by topic and tenant", nil)
	var err error
	if t.inFlight, err = m.Int64UpDownCounter("oncebox.outbox.inflight",
		metric.WithDescription("Events that were sent to the broker and are not confirmed yet")); err != nil {
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

// HandedOver counts rows that the broker has now. Its counterpart, with a negative number, follows when the publication
// has ended, so it is wrong only while a publication is under way.
func (t *Instruments) HandedOver(ctx context.Context, rows int) { t.inFlight.Add(ctx, int64(rows)) }

// Published counts rows that the broker has confirmed. It is called when that is written down, and not before: a row
// that is published again because the note was lost must not count twice.
func (t *Instruments) Published(ctx context.Context, rows int) { t.published.Add(ctx, int64(rows)) }

// Unconfirmed counts rows that were sent and stay for another try, because the topic or the broker was in trouble.
func (t *Instruments) Unconfirmed(ctx context.Context, rows int) {
	if rows > 0 {
		t.unconfirmed.Add(ctx, int64(rows))
	}
}

// Refused counts a refusal of a single row, also of a row that is sent again because its wait could not be written
// down.
func (t *Instruments) Refused(r *outboxdb.Row) { t.refused.Add(1, r.Topic, r.TenantID) }

// Took records how long the broker took for a publication, and how long the oldest row that it confirmed had waited.
// A publication that failed counts too: a broker that answers nothing would look fast otherwise. due returns the time
// from which on a row was free to leave.
func (t *Instruments) Took(ctx context.Context, rows []*outboxdb.Row, errs map[int]error, began time.Time, due func(*outboxdb.Row) time.Time) {
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

func (t *Instruments) tried(ctx context.Context, r *outboxdb.Row, outcome string) {
	t.attempts.Record(ctx, int64(r.RetryCount+1), metric.WithAttributes(attribute.String("outcome", outcome)))
}

// GaveUp records a dead letter.
func (t *Instruments) GaveUp(ctx context.Context, r *outboxdb.Row) {
	t.dead.Add(1, r.Topic, r.TenantID)
	t.tried(ctx, r, outcomeDead)
}
