package inbox

import (
	"context"
	"time"
)

// absentConsumers finds the consumers with parked messages that no process has run for a while. A process says once a minute that it runs.
const absentConsumers = `
SELECT c.consumer, c.beat_at FROM {schema}.inbox_consumer c
WHERE c.beat_at < clock_timestamp() - interval '3 minutes' AND EXISTS (SELECT FROM {schema}.inbox_key k WHERE k.consumer = c.consumer)
ORDER BY c.beat_at, c.consumer`

// Absent returns the consumers that have parked messages and that no process runs, with the time when one was last seen running, by the clock of
// the database. A consumer is absent after three minutes.
func (i *Inbox) Absent(ctx context.Context) (map[string]time.Time, error) {
	rows, err := i.patient.Query(ctx, i.units.DB(ctx), absentConsumers)
	if err != nil {
		return nil, wrapErr("look for absent consumers", err)
	}
	defer rows.Close()
	list := map[string]time.Time{}
	for rows.Next() {
		var consumer string
		var seen time.Time
		if err := rows.Scan(&consumer, &seen); err != nil {
			return nil, wrapErr("look for absent consumers", err)
		}
		list[consumer] = seen
	}
	return list, wrapErr("look for absent consumers", rows.Err())
}
