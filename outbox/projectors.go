package outbox

import (
	"context"
	"time"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// listProjectors are those that have not said that they end, of the last day.
const listProjectors = `
SELECT p.owner, p.grp, p.deployment, p.seen_until > clock_timestamp(), p.seen_until, p.error, p.failed_at,
	(SELECT count(*) FROM {schema}.outbox_lane l WHERE l.owner = p.owner AND l.lease_until > clock_timestamp())
FROM {schema}.outbox_projector p WHERE p.seen_until > clock_timestamp() - interval '1 day' ORDER BY p.grp, p.owner`

// ProjectorState is what an operator sees of a projector: a process that publishes.
type ProjectorState struct {
	// Owner is its name among the owners of lanes, Group the group whose lanes it publishes, Deployment that of its settings.
	Owner      string
	Group      int16
	Deployment string
	// Alive says that its heartbeat lasts, SeenUntil until when it does, or did. A projector that ends as it should is not listed any more; one that
	// vanished is, for a day.
	Alive     bool
	SeenUntil time.Time
	// Lanes is how many lanes it has.
	Lanes int
	// Error is why the broker, or a topic, last took nothing from it, and FailedAt when that was. Zero: it never was so.
	Error    string
	FailedAt time.Time
}

// Projectors lists the processes that publish, and those that vanished within a day.
func (s *Store) Projectors(ctx context.Context) ([]ProjectorState, error) {
	list, err := pgsql.Collect(s.adHoc().Query(ctx, s.db, listProjectors), func(scan pgsql.Scan, p *ProjectorState) error {
		var failed *time.Time
		if err := scan(&p.Owner, &p.Group, &p.Deployment, &p.Alive, &p.SeenUntil, &p.Error, &failed, &p.Lanes); err != nil {
			return err
		}
		if failed != nil {
			p.FailedAt = *failed
		}
		return nil
	})
	return list, outboxdb.Wrap("list projectors", err)
}
