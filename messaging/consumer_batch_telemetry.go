package messaging

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/internal/skipped"
)

// handleBatch runs h in a span that is linked to the senders of all messages, and returns an error for each message that
// is not settled. Outcomes are counted by message.
func (t *telemetry) handleBatch(ctx context.Context, h BatchHandler, batch []keyed) map[int]error {
	topic := batch[0].m.Topic
	ctx, span := t.tracer.Start(ctx, otelx.OperationProcess.SpanName(topic),
		trace.WithNewRoot(),
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(otelx.OperationProcess.Attributes(topic)...),
		trace.WithAttributes(
			attribute.String("messaging.consumer.group.name", t.consumer),
			attribute.Int("messaging.batch.message_count", len(batch)),
		))
	defer span.End()
	if span.IsRecording() {
		for _, k := range batch {
			if sender := otelx.Extract(k.m.Metadata); sender.IsValid() {
				span.AddLink(trace.Link{SpanContext: sender})
			}
		}
	}

	running := t.measured(topic, "")
	t.running.Add(ctx, 1, running)
	defer t.running.Add(ctx, -1, running)
	start := time.Now()
	inner, mark := skipped.With(context.WithValue(ctx, telemetryKey{}, t))
	err := callBatch(inner, h, copies(batch))
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
			t.handled.Add(ctx, n, t.measured(topic, what))
		}
	}
	what := outcome(err, nil)
	if len(failed) > 0 && len(failed) < len(batch) {
		what = "partial"
	}
	t.duration.Record(ctx, took, t.measured(topic, what))
	if len(failed) > 0 {
		span.RecordError(err)
		span.SetStatus(codes.Error, what)
		t.failedBatch(ctx, topic, len(batch), len(failed), err)
	}
	return failed
}

// failedBatch logs a batch that failed as a whole or in part.
func (t *telemetry) failedBatch(ctx context.Context, topic string, size, failed int, err error) {
	attrs := []slog.Attr{
		slog.String("consumer", t.consumer), slog.String("topic", topic), slog.Int("messages", size), slog.Int("failed", failed), slog.Any("error", err),
	}
	t.log.LogAttrs(ctx, failureLevel(err), "oncebox: a batch failed, its messages that are not settled are handled one by one", withStack(attrs, err)...)
}
