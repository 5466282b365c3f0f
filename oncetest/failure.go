package oncetest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// Failure is an event that the broker refused, or a message that a consumer could not handle.
type Failure struct {
	// Consumer is the name of the consumer that has failed; "" if the event could not be published.
	Consumer string
	// EventID, Type and Topic are those of the event.
	EventID, Type, Topic string
	// Attempts is how often it was tried.
	Attempts int
	// Error is the last error, at most 2 KiB of it.
	Error string
	// Dead says that it was given up. If not, it is tried again when its pause is over.
	Dead bool
}

// String is the failure in one line.
func (f Failure) String() string {
	what, next := "publish", "tried again after a pause"
	if f.Consumer != "" {
		what = "consumer " + f.Consumer
	}
	if f.Dead {
		next = "dead"
	}
	return fmt.Sprintf("%s: %s %s (topic %s), attempt %d, %s: %s", what, f.Type, f.EventID, f.Topic, f.Attempts, next, f.Error)
}

func list[T fmt.Stringer](items []T) string {
	var text strings.Builder
	for _, item := range items {
		text.WriteString("\n  " + item.String())
	}
	return text.String()
}

// listFailures reads what has failed.
const listFailures = `
SELECT consumer, message_id, event_type, topic, attempts, error_message, false AS dead
FROM inbox_parked p WHERE error_message <> '' AND NOT EXISTS (SELECT FROM inbox_dead d
	WHERE (d.message_key, d.consumer, d.tenant_id, d.source) = (p.message_key, p.consumer, p.tenant_id, p.source))
UNION ALL SELECT consumer, message_id, event_type, topic, attempts, error_message, true FROM inbox_dead
UNION ALL SELECT '', id::text, event_type, topic, retry_count, coalesce(error_message, ''), false FROM outbox_held WHERE retry_count > 0
UNION ALL SELECT '', id::text, event_type, topic, retry_count, coalesce(error_message, ''), true FROM outbox_dead`

// failures returns what failed and was not returned before.
func (k *Kit) failures(ctx context.Context) ([]Failure, error) {
	all, err := pgsql.Collect(pgsql.QueryPlain(ctx, k.DB, listFailures), func(scan pgsql.Scan, f *Failure) error {
		return scan(&f.Consumer, &f.EventID, &f.Type, &f.Topic, &f.Attempts, &f.Error, &f.Dead)
	})
	if err != nil {
		return nil, fmt.Errorf("list failures: %w", err)
	}
	return slices.DeleteFunc(all, func(f Failure) bool {
		key := fmt.Sprintf("%s %s %d %t", f.Consumer, f.EventID, f.Attempts, f.Dead)
		known := k.reported[key]
		k.reported[key] = true
		return known
	}), nil
}
