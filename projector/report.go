package projector

import (
	"context"
	"log/slog"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// report shows in the metrics and in the log what became of a row that the broker has not taken. Followers and
// delayed rows are not reported: there may be any number of them, and nothing is wrong with them.
func (w *worker) report(ctx context.Context, r *outboxdb.Row, o lanedb.Outcome) {
	p := w.r.p
	log := func(level slog.Level, message string, more ...any) {
		p.log.Log(ctx, level, message, append(more, "id", r.ID, "type", r.Type, "topic", r.Topic, "tenant", r.TenantID,
			"aggregate_type", r.AggregateType, "aggregate_id", r.AggregateID, "ordering_key", r.Key,
			"lane", r.Lane, "sequence", r.Sequence, "error", o.Error)...)
	}
	switch o.Verdict {
	case lanedb.Refused:
		log(slog.LevelWarn, "oncebox: the broker refused an event, it waits", "wait", o.Wait)
	case lanedb.Dead:
		p.telemetry.gaveUp(ctx, r)
		log(slog.LevelError, "oncebox: an event is dead, its key waits for an operator")
	case lanedb.Abandoned:
		p.telemetry.gaveUp(ctx, r)
		log(slog.LevelError, "oncebox: an event is dead, its key goes on")
	case lanedb.Follower, lanedb.Delayed:
	}
}
