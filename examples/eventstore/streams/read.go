package streams

import (
	"cmp"
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
)

// page is how many events Replay reads at once.
const page = 500

// Load calls apply for each event of the aggregate's stream, oldest first, and returns the version after the last one:
// 0 if there is none. The tenant is that of the context, else "default", as for events. For an event that this build
// does not understand the error is that of [event.Registry.Decode]. For a sealed event that cannot be opened it is that
// of [event.Registry.Open]: an aggregate whose key was erased cannot be loaded any more.
func (s *Store) Load(ctx context.Context, db bun.IDB, a event.Aggregate, apply func(event.Event)) (version int64, err error) {
	var rows []row
	err = db.NewSelect().Model(&rows).
		Where("tenant_id = ?", cmp.Or(event.TenantFrom(ctx), "default")).
		Where("aggregate_type = ?", a.AggregateType()).
		Where("aggregate_id = ?", a.AggregateID()).
		Order("version").Scan(ctx)
	if err != nil {
		return 0, fmt.Errorf("streams: load %s %s: %w", a.AggregateType(), a.AggregateID(), err)
	}
	for i := range rows {
		if rows[i].Version != version+1 {
			return 0, fmt.Errorf("streams: load %s %s: version %d follows version %d", a.AggregateType(), a.AggregateID(), rows[i].Version, version)
		}
		env := rows[i].envelope()
		e, err := s.decode(ctx, &env)
		if err != nil {
			return 0, fmt.Errorf("streams: load %s %s, version %d: %w", a.AggregateType(), a.AggregateID(), rows[i].Version, err)
		}
		apply(e)
		version = rows[i].Version
	}
	return version, nil
}

func (s *Store) decode(ctx context.Context, env *event.Envelope) (event.Event, error) {
	opened, err := s.registry.Open(ctx, env)
	if err != nil {
		return nil, err
	}
	return s.registry.Decode(opened)
}

// Count returns how many events there are.
func (s *Store) Count(ctx context.Context, db bun.IDB) (int64, error) {
	n, err := db.NewSelect().Model((*row)(nil)).Count(ctx)
	if err != nil {
		return 0, fmt.Errorf("streams: count: %w", err)
	}
	return n, nil
}

// Replay hands every event to fn as it is stored, stream after stream, each in the order of its versions,
// and ends at the first error.
//
// There is no order over several streams: numbers that are drawn at the INSERT do not follow the order of commits, and
// numbers that do would make all writers wait for each other. An event that is committed meanwhile is handed over or
// not; to fn's read model it comes with its message at the latest, so long as it takes each version once.
func (s *Store) Replay(ctx context.Context, db bun.IDB, fn func(context.Context, event.Envelope) error) error {
	var last row
	for {
		var rows []row
		err := db.NewSelect().Model(&rows).
			Where("(tenant_id, aggregate_type, aggregate_id, version) > (?, ?, ?, ?)", last.TenantID, last.AggregateType, last.AggregateID, last.Version).
			Order("tenant_id", "aggregate_type", "aggregate_id", "version").Limit(page).Scan(ctx)
		if err != nil {
			return fmt.Errorf("streams: replay: %w", err)
		}
		for i := range rows {
			last = rows[i]
			if err := fn(ctx, last.envelope()); err != nil {
				return fmt.Errorf("streams: replay %s %s, version %d: %w", last.AggregateType, last.AggregateID, last.Version, err)
			}
		}
		if len(rows) < page {
			return nil
		}
	}
}
