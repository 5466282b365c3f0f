package inbox

import (
	"context"
	"database/sql"
)

// listProjections counts what waits up to 10,000, by the index of the parked messages.
const listProjections = `
SELECT p.name, p.generation, p.consumer, p.state = 'REBUILDING', p.owner IS NOT NULL AND p.lease_until > clock_timestamp(), p.checkpoint, p.events,
	(SELECT count(*) FROM (
		SELECT FROM {schema}.inbox_parked w WHERE w.consumer = p.name || '@' || p.generation::text || '` + aside + `' LIMIT 10000) x),
	p.started_at, p.updated_at
FROM {schema}.inbox_projection p ORDER BY p.name`

// Projections tells how all projections of this database are, by their names, also in a process that has none of their handlers. Waiting goes up to
// 10,000.
func (i *Inbox) Projections(ctx context.Context) ([]ProjectionStatus, error) {
	rows, err := i.patient.Query(ctx, i.units.DB(ctx), listProjections)
	if err != nil {
		return nil, wrapErr("list projections", err)
	}
	defer rows.Close()
	var list []ProjectionStatus
	for rows.Next() {
		var s ProjectionStatus
		var started sql.NullTime
		err := rows.Scan(&s.Name, &s.Generation, &s.Consumer, &s.Rebuilding, &s.Running, &s.Checkpoint, &s.Events, &s.Waiting, &started, &s.UpdatedAt)
		if err != nil {
			return nil, wrapErr("list projections", err)
		}
		s.StartedAt = started.Time
		list = append(list, s)
	}
	return list, wrapErr("list projections", rows.Err())
}
