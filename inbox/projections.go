package inbox

import (
	"context"
	"database/sql"

	"github.com/oncebox/oncebox/internal/pgsql"
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
	list, err := pgsql.Collect(i.patient.Query(ctx, i.units.DB(ctx), listProjections), func(scan pgsql.Scan, s *ProjectionStatus) error {
		var started sql.NullTime
		err := scan(&s.Name, &s.Generation, &s.Consumer, &s.Rebuilding, &s.Running, &s.Checkpoint, &s.Events, &s.Waiting, &started, &s.UpdatedAt)
		if err != nil {
			return err
		}
		s.StartedAt = started.Time
		return nil
	})
	return list, wrapErr("list projections", err)
}
