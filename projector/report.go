package projector

import (
	"context"
	"log/slog"

	"github.com/oncebox/oncebox/outbox"
)

// report tells in metrics and in the log what became of a row that the broker has not taken.
func (w *worker) report(ctx context.Context, r *outbox.Row, o outbox.Outcome) {
	p := w.r.p
	log := func(level slog.Level, message string, more ...any) {
		p.log.Log(ctx, level, message, append(more, "id", r.ID, "type", r.Type, "topic", r.Topic, "tenant", r.TenantID,
			"aggregate_type", r.AggregateType, "aggregate_id", r.AggregateID, "ordering_key", r.Key,
			"lane", r.Lane, "sequence", r.Sequence, "error", o.Error)...)
	}
	switch o.Verdict {
	case outbox.Refused:
		log(slog.LevelWarn, "oncebox: the broker refused an event, it waits", "wait", o.Wait)
	case outbox.Dead:
		p.telemetry.gaveUp(ctx, r)
		log(slog.LevelError, "oncebox: an event is dead, its key waits for an operator")
	case outbox.Abandoned:
		p.telemetry.gaveUp(ctx, r)
		log(slog.LevelError, "oncebox: an event is dead, its key goes on")
	case outbox.Follower, outbox.Delayed:
	}
}
