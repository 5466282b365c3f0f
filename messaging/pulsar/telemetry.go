package pulsar

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/telemetry"
)

// instruments holds the tracer and the metrics of a broker.
type instruments struct {
	tracer          trace.Tracer
	messages        metric.Int64Counter
	unwatchedTopics metric.Int64Counter
	duration        metric.Float64Histogram
}

func newInstruments(to telemetry.Config) *instruments {
	meter := otelx.Meter(to.MeterProvider, "messaging/pulsar")
	return &instruments{
		tracer:   otelx.Tracer(to.TracerProvider, "messaging/pulsar"),
		messages: otelx.Counter(meter, "oncebox.broker.published", "Messages that were sent to the broker, by outcome"),
		unwatchedTopics: otelx.Counter(meter, "oncebox.broker.unwatched_topics",
			"Topics this process publishes to that lack a declared subscription, or have neither a subscription nor retention"),
		duration: otelx.Histogram(meter, "oncebox.broker.publish.duration", "Duration of one call of Publish",
			.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30),
	}
}

// start begins the span of one call of Publish.
func (t *instruments) start(ctx context.Context, messages int) (context.Context, trace.Span) {
	return t.tracer.Start(ctx, "publish", trace.WithSpanKind(trace.SpanKindClient), //nolint:spancheck // published ends it
		trace.WithAttributes(attribute.String("messaging.system", "pulsar"), attribute.Int("messaging.batch.message_count", messages)))
}

// published counts the outcomes of the messages of one call of Publish, whose span is that of ctx, and returns the error of the call.
func (t *instruments) published(ctx context.Context, msgs []event.Envelope, failed map[int]error, began time.Time) error {
	type series struct{ topic, outcome string }
	counts := map[series]int64{}
	for i := range msgs {
		counts[series{msgs[i].Topic, outcome(failed[i])}]++
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

// unwatched counts a topic that may lose messages because no subscription keeps them.
func (t *instruments) unwatched(ctx context.Context, topic string) {
	t.unwatchedTopics.Add(ctx, 1, metric.WithAttributes(attribute.String("topic", topic)))
}

// outcome sorts an error for the metric. The classes are those by which the relay decides who waits.
func outcome(err error) string {
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
