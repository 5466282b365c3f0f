package messaging

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/oncebox/oncebox/internal/otelx"
)

// telemetry is what a consumer logs, traces and measures.
type telemetry struct {
	consumer string
	log      *slog.Logger
	tracer   trace.Tracer
	handled  metric.Int64Counter
	running  metric.Int64UpDownCounter
	duration metric.Float64Histogram
}

func newTelemetry(c *ConsumerConfig) *telemetry {
	meter := otelx.Meter(c.MeterProvider, "messaging")
	running, err := meter.Int64UpDownCounter("oncebox.consumer.running", metric.WithDescription("Handlers that run at present"))
	if err != nil {
		otel.Handle(err)
	}
	duration, err := meter.Float64Histogram("oncebox.consumer.duration", metric.WithUnit("s"),
		metric.WithDescription("How long one try of a handler took, by outcome"))
	if err != nil {
		otel.Handle(err)
	}
	return &telemetry{
		consumer: c.Name,
		log:      otelx.Logger(c.Logger),
		tracer:   otelx.Tracer(c.TracerProvider, "messaging"),
		handled:  otelx.Counter(meter, "oncebox.consumer.handled", "Tries of handlers, by outcome"),
		running:  running,
		duration: duration,
	}
}

// handle runs h in a span of its own. The span is linked to the sender's and not its child: a message may be handled
// days after it was sent, and several times.
func (t *telemetry) handle(ctx context.Context, h Handler, m *Message) error {
	opts := []trace.SpanStartOption{
		trace.WithNewRoot(),
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(
			attribute.String("messaging.operation.type", "process"),
			attribute.String("messaging.destination.name", m.Topic),
			attribute.String("messaging.consumer.group.name", t.consumer),
			attribute.String("messaging.message.id", m.ID),
			attribute.String("oncebox.event.type", m.Type),
			attribute.Int("oncebox.attempt", m.Attempt),
		),
	}
	if sender := otelx.Extract(m.Metadata); sender.IsValid() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: sender}))
	}
	ctx, span := t.tracer.Start(ctx, "process "+m.Topic, opts...)
	defer span.End()

	where := []attribute.KeyValue{attribute.String("consumer", t.consumer), attribute.String("topic", m.Topic)}
	t.running.Add(ctx, 1, metric.WithAttributes(where...))
	defer t.running.Add(ctx, -1, metric.WithAttributes(where...))
	start := time.Now()
	err := call(NewContext(ctx, m), h, m)
	took := time.Since(start).Seconds()

	what := metric.WithAttributes(append(where, attribute.String("outcome", outcome(err)))...)
	t.handled.Add(ctx, 1, what)
	t.duration.Record(ctx, took, what)
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, outcome(err))
	}
	return err
}

func outcome(err error) string {
	var panicked *PanicError
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &panicked):
		return "panic"
	case IsPermanent(err):
		return "permanent"
	default:
		return "error"
	}
}

// failed logs a failed try.
func (t *telemetry) failed(ctx context.Context, m *Message, n int, pause time.Duration, err error) {
	level, text := slog.LevelWarn, "oncebox: handler failed, its key is held until the message is tried again"
	attrs := []slog.Attr{
		slog.String("consumer", t.consumer), slog.String("topic", m.Topic), slog.String("type", m.Type), slog.String("id", m.ID),
		slog.String("key", m.OrderingKey()), slog.Int("try", n), slog.Duration("pause", pause), slog.Any("error", err),
	}
	if panicked, ok := errors.AsType[*PanicError](err); ok {
		level = slog.LevelError
		attrs = append(attrs, slog.String("stack", string(panicked.Stack)))
	}
	if IsPermanent(err) {
		level, text = slog.LevelError, "oncebox: handler gave up for good and nothing makes a dead letter of it: wrap the handler with inbox.Wrap"
	}
	t.log.LogAttrs(ctx, level, text, attrs...)
}
