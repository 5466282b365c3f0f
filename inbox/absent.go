package inbox

import (
	"context"
	"time"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// absentConsumers finds the consumers with parked messages that no process runs: one that says once a minute that it does has been silent, or the last
// one has ended in order, or was killed.
const absentConsumers = `
SELECT c.consumer, greatest(c.beat_at, c.stopped_at) FROM {schema}.inbox_consumer c
WHERE EXISTS (SELECT FROM {schema}.inbox_key k WHERE k.consumer = c.consumer) AND (c.beat_at < clock_timestamp() - interval '3 minutes'
	OR (c.stopped_at >= c.beat_at
			OR EXISTS (SELECT FROM {schema}.inbox_process p WHERE p.consumer = split_part(c.consumer, '@', 1) AND p.seen_until < clock_timestamp()))
		AND NOT EXISTS (SELECT FROM {schema}.inbox_process p WHERE p.consumer = split_part(c.consumer, '@', 1) AND p.seen_until >= clock_timestamp()))
ORDER BY c.beat_at, c.consumer`

// Absent returns the consumers that have parked messages and that no process runs, with the time when one was last seen running, by the clock of
// the database. A consumer is absent as soon as its last process has ended in order, a minute after that was
// killed, and after three minutes if it only handles what is parked.
func (i *Inbox) Absent(ctx context.Context) (map[string]time.Time, error) {
	list := map[string]time.Time{}
	err := pgsql.Each(i.patient.Query(ctx, i.units.DB(ctx), absentConsumers), func(scan pgsql.Scan) error {
		var consumer string
		var seen time.Time
		if err := scan(&consumer, &seen); err != nil {
			return err
		}
		list[consumer] = seen
		return nil
	})
	return list, wrapErr("look for absent consumers", err)
}
