package projector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/projector/internal/leases"
	"github.com/oncebox/oncebox/projector/internal/measure"
	"github.com/oncebox/oncebox/projector/internal/progress"
	"github.com/oncebox/oncebox/projector/internal/schedule"
	"github.com/oncebox/oncebox/retry"
)

// errInDoubt is the error of rows that publish did not hand over, because this worker may not own them any more, or
// may not know their blocks. It counts as behind: nothing is said about the topic or the broker, and the rows stay.
var errInDoubt = fmt.Errorf("projector: the lease ends too soon, or the lane's blocks have changed: %w", messaging.ErrBehind)

// publisher hands rows of one worker to the broker, and draws the conclusions about topics from the answers. It decides
// nothing about single rows: progress.Batch does for rows of the log, and queues for held rows.
type publisher struct {
	pub       messaging.Publisher
	owned     *leases.Owned
	topics    *schedule.Topics
	tenants   *schedule.Tenants
	silence   *schedule.Silence
	failure   *leases.Failure
	timeout   time.Duration // Config.PublishTimeout
	silent    retry.Policy  // the pauses after calls of unknown outcome
	telemetry *measure.Instruments
	tracer    trace.Tracer
	log       *slog.Logger
}

// publish hands rows to the broker and returns the errors by index. A row without an error is confirmed.
//
// It checks the leases once more. The database may have taken long to return the rows, and a projector that has
// claimed a lane meanwhile publishes them too. One lane in doubt stops the whole call. The next pass begins without
// this lane, or with its blocks read again.
func (p *publisher) publish(ctx context.Context, lanes map[int16]*progress.Lane, rows []*outboxdb.Row) map[int]error {
	if !p.owned.MayPublish(lanes, rows) {
		errs := map[int]error{}
		for i := range rows {
			errs[i] = errInDoubt
		}
		return errs
	}
	began := time.Now() // before the call: a receipt proves that the broker worked after this moment
	errs := p.handOver(ctx, rows)
	for _, t := range p.silence.Report(p.topics, rows, errs, began, p.silent) {
		p.reportPause(ctx, t.Topic, t.Pause, t.Reason)
	}
	return errs
}

// handOver is the part of publish that may run beside the worker. It touches no field of the worker. No transaction
// of the database is open meanwhile.
//
// Every row passes here each time that it is sent, in a batch or as a probe. So a metric of sendings is taken here. Rows
// that are recorded as published are counted where that is recorded, in settle.go.
func (p *publisher) handOver(ctx context.Context, rows []*outboxdb.Row) map[int]error {
	began := time.Now()
	p.telemetry.HandedOver(ctx, len(rows))
	defer p.telemetry.HandedOver(ctx, -len(rows))
	errs := p.send(ctx, rows)
	p.telemetry.Took(ctx, rows, errs, began, p.tenants.Due)
	p.failure.Note(rows, errs)
	return errs
}

// send calls the publisher within a span. It returns the errors by index.
func (p *publisher) send(ctx context.Context, rows []*outboxdb.Row) map[int]error {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	// The events of a batch belong to many traces. So the span is the root of a trace of its own and has links to them.
	ctx, span := p.tracer.Start(ctx, string(otelx.OperationSend), trace.WithSpanKind(trace.SpanKindClient), trace.WithNewRoot())
	defer span.End()
	msgs := make([]event.Envelope, len(rows))
	for i, r := range rows {
		msgs[i] = r.Envelope
	}
	describe(span, msgs)

	err := p.pub.Publish(ctx, msgs)
	if err == nil {
		return nil
	}
	span.SetStatus(codes.Error, err.Error())
	errs := map[int]error{}
	// A PublishError names the rows that failed. Any other error is one of the whole call.
	if partial, ok := errors.AsType[*messaging.PublishError](err); ok {
		errs = partial.Failed
	} else {
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			err = errors.Join(messaging.ErrUnknown, err) // the time was up for the call as a whole, so each row may have been stored
		}
		for i := range rows {
			errs[i] = err
		}
	}
	return errs
}

func (p *publisher) reportPause(ctx context.Context, topic string, pause time.Duration, reason error) {
	p.log.WarnContext(ctx, "oncebox: the broker accepts no messages for a topic; events of this topic wait", "topic", topic, "pause", pause, "error", reason)
}

// describe names the span, and links it to the spans in which the messages were created.
func describe(span trace.Span, msgs []event.Envelope) {
	if !span.IsRecording() {
		return
	}
	topic := msgs[0].Topic
	for i := range msgs {
		if msgs[i].Topic != topic {
			topic = ""
		}
		// The SDK keeps 128 links per span and silently drops the others.
		if sc := otelx.Extract(msgs[i].Metadata); sc.IsValid() && i < 128 {
			span.AddLink(trace.Link{SpanContext: sc})
		}
	}
	span.SetName(otelx.OperationSend.SpanName(topic))
	span.SetAttributes(append(otelx.OperationSend.Attributes(topic), attribute.Int("messaging.batch.message_count", len(msgs)))...)
}
