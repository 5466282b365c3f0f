package projector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/messaging"
)

// errInDoubt is why rows stay that were to be published when it was not sure any more that it is their turn.
var errInDoubt = fmt.Errorf("projector: the lease ends too soon, or the lane's blocks have changed: %w", messaging.ErrBehind)

// publish hands rows to the broker and returns the errors by index.
//
// The leases are looked at once more, because the database may have taken long to give the rows: the projector that has a lane by
// then publishes them too. One lane in doubt stops the call. The next pass begins without it, or with its blocks read anew.
func (w *worker) publish(ctx context.Context, lanes map[int16]*lane, rows []*outboxdb.Row) map[int]error {
	if !w.mayPublish(lanes, rows) {
		errs := map[int]error{}
		for i := range rows {
			errs[i] = errInDoubt
		}
		return errs
	}
	began := time.Now()
	errs := w.handOver(ctx, rows)
	w.r.p.telemetry.took(ctx, rows, errs, began, w.r.tenants.due)
	w.reportTopics(ctx, rows, errs, began)
	w.r.failure.note(errs)
	return errs
}

// handOver is the part of publish that may run beside the worker.
func (w *worker) handOver(ctx context.Context, rows []*outboxdb.Row) map[int]error {
	p := w.r.p
	n := int64(len(rows))
	p.telemetry.inFlight.Add(ctx, n)
	defer p.telemetry.inFlight.Add(ctx, -n)
	ctx, cancel := context.WithTimeout(ctx, p.cfg.PublishTimeout)
	defer cancel()
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
	if partial, ok := errors.AsType[*messaging.PublishError](err); ok {
		errs = partial.Failed
	} else {
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			err = errors.Join(messaging.ErrUnknown, err) // of the call as a whole, not of a message
		}
		for i := range rows {
			errs[i] = err
		}
	}
	return errs
}

// mayPublish tells whether what is published now is settled before the leases of these rows' lanes end, and whether the
// blocks that the choice of the rows rests on are still those of the database, as far as this worker knows.
func (w *worker) mayPublish(lanes map[int16]*lane, rows []*outboxdb.Row) bool {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range rows {
		if l := lanes[r.Lane]; l.loaded < 0 || !l.usable(now, w.r.p.cfg.PublishTimeout) {
			return false
		}
	}
	return true
}

// describe links the span to those in which the messages were created.
func describe(span trace.Span, msgs []event.Envelope) {
	if !span.IsRecording() {
		return
	}
	topic := msgs[0].Topic
	for i := range msgs {
		if msgs[i].Topic != topic {
			topic = ""
		}
		// The SDK keeps 128 links per span and drops the rest without a word.
		if sc := otelx.Extract(msgs[i].Metadata); sc.IsValid() && i < 128 {
			span.AddLink(trace.Link{SpanContext: sc})
		}
	}
	span.SetName(otelx.OperationSend.SpanName(topic))
	span.SetAttributes(append(otelx.OperationSend.Attributes(topic), attribute.Int("messaging.batch.message_count", len(msgs)))...)
}
