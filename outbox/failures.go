package outbox

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/operator/failures"
)

// Failures returns what fails at the relay, grouped by cause: events that the broker refuses, and dead letters.
func (s *Store) Failures() *failures.Groups {
	db := func(context.Context) bun.IDB { return s.box.DB }
	return failures.New(operator.PartOutbox, s.box.AdHoc(), db, refusedEvents, deadEvents,
		func(ctx context.Context, action operator.Action, g *failures.Group, by operator.By, bulk *operator.Bulk) (int64, error) {
			letters := operator.DeadFilter{Fingerprint: g.Fingerprint}
			switch action {
			case operator.Replay:
				return s.Dead().ReplayAll(ctx, letters, by, bulk)
			case operator.Discard:
				return s.Dead().DiscardAll(ctx, letters, by, bulk)
			default: // the relay tries them by itself
				return 0, by.Validate(action)
			}
		})
}

// failure lists the columns by which an event is known. It has no message key and no consumer.
const failure = `f.id::text, '', '', f.tenant_id, f.source, f.topic, f.event_type, coalesce(f.ordering_key, '')`

var (
	// refusedEvents waits at infinity where an operator has replayed an earlier event of the key.
	refusedEvents = failures.Table{ //nolint:gochecknoglobals // a constant
		Name: "{schema}.outbox_held", Since: "cause_since", Counts: "true", Next: "nullif(f.retry_after, 'infinity')",
		Example: failure + ", f.ordering_key IS NOT NULL, f.retry_count + f.crashes, coalesce(f.error_message, ''), ''",
	}
	deadEvents = failures.Table{ //nolint:gochecknoglobals // a constant
		Name: "{schema}.outbox_dead", Since: "died_at", Counts: "true", Next: "NULL::timestamptz",
		Example: failure + `, (SELECT ` + outboxdb.HoldsKey + ` FROM (SELECT f.lane, f.ordering_key, f.seq) d),
			f.retry_count + f.crashes, coalesce(f.error_message, ''), ''`,
	}
)
