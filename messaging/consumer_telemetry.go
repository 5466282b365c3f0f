package messaging

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/internal/skipped"
)

// instruments has the logger, the tracer and the metrics of a consumer.
type instruments struct {
	consumer string
	log      *slog.Logger
	tracer   trace.Tracer
	handled  metric.Int64Counter
	running  metric.Int64UpDownCounter
	duration metric.Float64Histogram
	backlog  metric.Int64Gauge
	skipped  metric.Int64Counter // counts the messages that a Router has no handler for

	leftOut    sync.Once
	attributes sync.Map // topic and outcome -> *attributes
	spans      sync.Map // topic -> *topicSpan
}

// topicSpan is what the spans of a topic's messages have in common. It is made once, because the options are a dozen objects.
type topicSpan struct {
	name            string
	options, asRoot []trace.SpanStartOption // asRoot begin a new trace
}

func (t *instruments) spanOf(topic string) *topicSpan {
	if known, ok := t.spans.Load(topic); ok {
		return known.(*topicSpan) //nolint:forcetypeassert // nothing else is stored
	}
	s := &topicSpan{name: otelx.OperationProcess.SpanName(topic)}
	s.options = []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(otelx.OperationProcess.Attributes(topic)...),
		trace.WithAttributes(attribute.String("messaging.consumer.group.name", t.consumer)),
	}
	s.asRoot = append(slices.Clip(s.options), trace.WithNewRoot())
	t.spans.Store(topic, s)
	return s
}

func newInstruments(c *ConsumerConfig) *instruments {
	meter := otelx.Meter(c.Telemetry.MeterProvider, "messaging")
	return &instruments{
		consumer: c.Name,
		log:      otelx.Logger(c.Telemetry.Logger),
		tracer:   otelx.Tracer(c.Telemetry.TracerProvider, "messaging"),
		handled:  otelx.Counter(meter, "oncebox.consumer.handled", "Calls of message handlers, by outcome"),
		running:  otelx.Running(meter, "oncebox.consumer.running", "Message handlers that are running now"),
		duration: otelx.Histogram(meter, "oncebox.consumer.duration", "Duration of one call of a message handler, by outcome",
			.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300),
		backlog: otelx.Gauge(meter, "oncebox.consumer.backlog", "Messages at the broker that this consumer has not settled"),
		skipped: otelx.Counter(meter, "oncebox.router.skipped", "Messages that were settled without being handled, because no handler is "+
			"registered for their event type"),
	}
}

// telemetryKey is the context key under which handlers find the consumer's instruments.
type telemetryKey struct{}

// handling is the context of one call of a handler. It has the consumer's instruments, and the mark of skipped messages.
type handling struct {
	skipped.Mark

	telemetry *instruments
}

// Value returns the instruments, and the values of the contexts around.
func (h *handling) Value(key any) any {
	if key == (telemetryKey{}) {
		return h.telemetry
	}
	return h.Mark.Value(key)
}

// attributes are those of a measurement, as a counter and as a histogram take them.
type attributes struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

// measured returns the attributes of a measurement. They are cached, because the OpenTelemetry SDK would sort and copy them for each message.
func (t *instruments) measured(topic, outcome string) *attributes {
	key := [2]string{topic, outcome}
	if known, ok := t.attributes.Load(key); ok {
		return known.(*attributes) //nolint:forcetypeassert // nothing else is stored
	}
	all := []attribute.KeyValue{attribute.String("consumer", t.consumer), attribute.String("topic", topic)}
	if outcome != "" {
		all = append(all, attribute.String("outcome", outcome))
	}
	option := metric.WithAttributeSet(attribute.NewSet(all...))
	made := &attributes{add: []metric.AddOption{option}, record: []metric.RecordOption{option}}
	t.attributes.Store(key, made)
	return made
}

// oneTrace is the largest age of a message whose handling still belongs to the trace in which the message was created. Trace stores search the spans
// of a trace near its beginning, and many keep them only for days.
const oneTrace = time.Hour

// handle runs h in a span of its own. The span is a child of the span in which the message was created, so that a request and its effects in other
// processes are one trace. A message may be handled days after it was sent: then the span begins a new trace and is linked to the sender's span.
func (t *instruments) handle(ctx context.Context, h Handler, m *Message) error {
	topic := t.spanOf(m.Topic)
	opts := topic.options
	sender := otelx.Extract(m.Metadata)
	switch {
	case !sender.IsValid():
		opts = topic.asRoot
	case time.Since(m.OccurredAt) < oneTrace:
		ctx = trace.ContextWithRemoteSpanContext(ctx, sender)
	default:
		opts = append(slices.Clip(topic.asRoot), trace.WithLinks(trace.Link{SpanContext: sender}))
	}
	ctx, span := t.tracer.Start(ctx, topic.name, opts...)
	defer span.End()
	if span.IsRecording() {
		span.SetAttributes(
			attribute.String("messaging.message.id", m.ID),
			attribute.String("oncebox.event.type", m.Type),
			attribute.Int("oncebox.attempt", m.Attempt),
		)
	}

	running := t.measured(m.Topic, "")
	t.running.Add(ctx, 1, running.add...)
	defer t.running.Add(ctx, -1, running.add...)
	start := time.Now()
	inner, left := newContext(ctx, m, sender)
	if len(left) > 0 {
		t.leftOut.Do(func() {
			t.log.WarnContext(ctx, "oncebox: a message has metadata that is not valid; the events that its handler emits do not inherit it (this "+
				"is logged only once)", "consumer", t.consumer,
				"topic", m.Topic, "type", m.Type, "id", m.ID, "keys", left)
		})
	}
	mark := &handling{Mark: skipped.Mark{Context: inner}, telemetry: t}
	err := call(mark, h, m)
	took := time.Since(start).Seconds()
	skipped.Add(ctx, mark.Count())

	what := t.measured(m.Topic, outcome(err, &mark.Mark))
	t.handled.Add(ctx, 1, what.add...)
	t.duration.Record(ctx, took, what.record...)
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, outcome(err, &mark.Mark))
	}
	return err
}

// outcome returns how a call ended, as an attribute of the metrics. A batch is never "skipped", because its messages are counted one by one.
func outcome(err error, mark *skipped.Mark) string {
	switch {
	case err == nil && mark != nil && mark.IsSet():
		return "skipped"
	case err == nil:
		return "ok"
	}
	switch _, panicked := errors.AsType[*PanicError](err); {
	case panicked:
		return "panic"
	case IsPermanent(err):
		return "permanent"
	default:
		return "error"
	}
}

// failed logs a failed try.
func (t *instruments) failed(ctx context.Context, m *Message, n int, pause time.Duration, err error) {
	level, text := slog.LevelWarn, "oncebox: handler failed; messages with the same ordering key wait until it is called again"
	if IsPermanent(err) {
		level, text = slog.LevelError, "oncebox: handler returned a permanent error, but the message cannot become a dead letter because the "+
			"handler is not wrapped with inbox.Wrap; it is tried again"
	}
	t.logFailure(ctx, level, text, err,
		slog.String("consumer", t.consumer), slog.String("topic", m.Topic), slog.String("type", m.Type), slog.String("id", m.ID),
		slog.String("tenant", m.TenantID), slog.String("ordering_key", m.OrderingKey()), slog.Int("try", n), slog.Duration("pause", pause),
		slog.Any("error", err))
}

// logFailure logs a failure of a handler. A panic is an ERROR with its stack.
func (t *instruments) logFailure(ctx context.Context, level slog.Level, text string, err error, attrs ...slog.Attr) {
	if panicked, ok := errors.AsType[*PanicError](err); ok {
		level, attrs = slog.LevelError, append(attrs, slog.String("stack", string(panicked.Stack)))
	}
	t.log.LogAttrs(ctx, level, text, attrs...)
}

// left logs a message that could be neither handled nor stored.
func (t *instruments) left(ctx context.Context, m *Message, err error) {
	t.log.ErrorContext(ctx, "oncebox: message could be neither handled nor stored in the inbox; the broker keeps it and delivers it again when "+
		"the consumer reconnects",
		"consumer", t.consumer, "topic", m.Topic, "type", m.Type, "id", m.ID, "tenant", m.TenantID, "error", err)
}

// Instrument returns a handler that calls h as a [Consumer] does: in a span, with metrics, and with a panic turned into an error. It is for code that
// hands messages to handlers itself. Only the name and the telemetry of cfg are used.
func Instrument(h Handler, cfg *ConsumerConfig) Handler {
	c := cfg.WithDefaults()
	t := newInstruments(&c)
	return HandlerFunc(func(ctx context.Context, m *Message) error { return t.handle(ctx, h, m) })
}

// handleBatch runs h in a span that is linked to the spans of all senders, and returns the error of each message that is not settled. The metrics
// count messages, not batches.
func (t *instruments) handleBatch(ctx context.Context, h BatchHandler, batch []keyed) map[int]error {
	topic := batch[0].m.Topic
	of := t.spanOf(topic)
	ctx, span := t.tracer.Start(ctx, of.name, of.asRoot...)
	defer span.End()
	if span.IsRecording() {
		span.SetAttributes(attribute.Int("messaging.batch.message_count", len(batch)))
		for _, k := range batch {
			if sender := otelx.Extract(k.m.Metadata); sender.IsValid() {
				span.AddLink(trace.Link{SpanContext: sender})
			}
		}
	}

	running := t.measured(topic, "")
	t.running.Add(ctx, 1, running.add...)
	defer t.running.Add(ctx, -1, running.add...)
	start := time.Now()
	mark := &handling{Mark: skipped.Mark{Context: ctx}, telemetry: t}
	err := callBatch(mark, h, copies(batch))
	took := time.Since(start).Seconds()

	failed := failures(batch, err)
	settled := int64(len(batch) - len(failed))
	counts := map[string]int64{"skipped": min(mark.Count(), settled)}
	counts["ok"] = settled - counts["skipped"]
	for _, err := range failed {
		counts[outcome(err, nil)]++
	}
	for what, n := range counts {
		if n > 0 {
			t.handled.Add(ctx, n, t.measured(topic, what).add...)
		}
	}
	what := outcome(err, nil)
	if len(failed) > 0 && len(failed) < len(batch) {
		what = "partial"
	}
	t.duration.Record(ctx, took, t.measured(topic, what).record...)
	if len(failed) > 0 {
		span.RecordError(err)
		span.SetStatus(codes.Error, what)
		t.logFailure(ctx, slog.LevelWarn, "oncebox: the handler of a batch failed; the messages that it has not settled are handled one by one", err,
			slog.String("consumer", t.consumer), slog.String("topic", topic), slog.Int("messages", len(batch)), slog.Int("failed", len(failed)),
			slog.Any("error", err))
	}
	return failed
}
