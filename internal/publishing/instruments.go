package publishing

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/telemetry"
)

// Instruments holds the tracer and the metrics of a broker.
type Instruments struct {
	system   string
	tracer   trace.Tracer
	messages metric.Int64Counter
	duration metric.Float64Histogram
}

// New returns the instruments of the adapter in package pkg. system is the value of the attribute messaging.system (OpenTelemetry semantic
// conventions, "Messaging attributes").
func New(to telemetry.Config, pkg, system string) *Instruments {
	meter := otelx.Meter(to.MeterProvider, pkg)
	return &Instruments{
		system:   system,
		tracer:   otelx.Tracer(to.TracerProvider, pkg),
		messages: otelx.Counter(meter, "oncebox.broker.published", "Messages that were sent to the broker, by outcome"),
		duration: otelx.Histogram(meter, "oncebox.broker.publish.duration", "Duration of one call of Publish",
			.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30),
	}
}

// Call makes publish the work of one call of Publish: it gives it a span, counts the errors that it returns by index, and returns the error of the
// call.
func (t *Instruments) Call(ctx context.Context, msgs []event.Envelope, publish func(ctx context.Context) map[int]error) error {
	began := time.Now()
	ctx, span := t.tracer.Start(ctx, "publish", trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attribute.String("messaging.system", t.system), attribute.Int("messaging.batch.message_count", len(msgs))))
	defer span.End()
	return t.end(ctx, msgs, publish(ctx), began)
}

// Topics is Call for an adapter that sends the topics of a call side by side, see [adapters.ByTopic]. A call without messages does nothing.
func (t *Instruments) Topics(ctx context.Context, msgs []event.Envelope,
	publish func(ctx context.Context, topic string, msgs []event.Envelope, indexes []int) map[int]error,
) error {
	if len(msgs) == 0 {
		return nil
	}
	return t.Call(ctx, msgs, func(ctx context.Context) map[int]error {
		return adapters.ByTopic(msgs, func(topic string, indexes []int) map[int]error { return publish(ctx, topic, msgs, indexes) })
	})
}

// end counts the outcomes of the messages of one call of Publish, whose span is that of ctx, and returns the error of the call.
func (t *Instruments) end(ctx context.Context, msgs []event.Envelope, failed map[int]error, began time.Time) error {
	type series struct{ topic, outcome string }
	counts := map[series]int64{}
	for i := range msgs {
		counts[series{msgs[i].Topic, Outcome(failed[i])}]++
	}
	for s, n := range counts {
		t.messages.Add(ctx, n, metric.WithAttributes(attribute.String("topic", s.topic), attribute.String("outcome", s.outcome)))
	}
	var err error
	result := "ok"
	if len(failed) > 0 {
		result, err = "failed", &messaging.PublishError{Failed: failed}
		trace.SpanFromContext(ctx).SetStatus(codes.Error, err.Error())
	}
	t.duration.Record(ctx, time.Since(began).Seconds(), metric.WithAttributes(attribute.String("outcome", result)))
	return err
}

// Outcome sorts an error for the metric. The classes are those by which the relay decides who waits.
func Outcome(err error) string {
	_, isTopic := errors.AsType[*messaging.TopicError](err)
	switch {
	case err == nil:
		return "ok"
	case messaging.IsPermanent(err):
		return "permanent"
	case isTopic:
		return "topic"
	case errors.Is(err, messaging.ErrBrokerDown):
		return "broker_down"
	case errors.Is(err, messaging.ErrBehind):
		return "behind"
	default:
		return "unknown"
	}
}
