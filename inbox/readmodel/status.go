package readmodel

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// Status is the state of a read model.
type Status struct {
	Name string
	// Generation counts the rebuilds, and Consumer is its name in the inbox.
	Generation int64
	Consumer   string
	// Rebuilding says that live messages wait for the end of a rebuild. Running says that a process works on it; if none does,
	// [Model.Resume] goes on.
	Rebuilding, Running bool
	// Checkpoint is how far the history was read, and Events how many events it has passed.
	Checkpoint string
	Events     int64
	// Waiting is how many live messages wait.
	Waiting int64
	// StartedAt is when the latest rebuild began, zero if there was none, and UpdatedAt when it last made progress.
	StartedAt, UpdatedAt time.Time
}

const (
	// statusColumns ends within a subquery. The statements below close it: one counts all that wait, the
	// other up to a bound.
	statusColumns = `SELECT p.name, p.generation, p.consumer, p.state = 'REBUILDING', p.owner IS NOT NULL AND p.lease_until > clock_timestamp(),
	p.checkpoint, p.events, (SELECT count(*) FROM (SELECT FROM {schema}.inbox_parked w
		WHERE w.consumer = p.name || '@' || p.generation::text || '` + store.Aside + `'`

	readStatus = statusColumns + `) x), p.started_at, p.updated_at FROM {schema}.inbox_read_model p WHERE p.name = $1`

	// listStatus counts waiting messages up to 10,000, by the index of the parked messages.
	listStatus = statusColumns + ` LIMIT 10000) x), p.started_at, p.updated_at FROM {schema}.inbox_read_model p ORDER BY p.name`
)

// scanStatus reads one row. started_at is NULL until the first rebuild.
func scanStatus(scan pgsql.Scan, s *Status) error {
	var started sql.NullTime
	err := scan(&s.Name, &s.Generation, &s.Consumer, &s.Rebuilding, &s.Running, &s.Checkpoint, &s.Events, &s.Waiting, &started, &s.UpdatedAt)
	s.StartedAt = started.Time
	return err
}

// Status returns the state of the read model.
func (m *Model) Status(ctx context.Context) (s Status, err error) {
	if _, err := m.generations.Look(ctx); err != nil {
		return s, err
	}
	h := m.box.Handle()
	_, err = pgsql.One(h.SQL.Query(ctx, h.DB(ctx), readStatus, m.Name()), func(scan pgsql.Scan) error { return scanStatus(scan, &s) })
	if err != nil {
		return s, fmt.Errorf("readmodel: read the state of %s: %w", m.Name(), pgerr.Explain(err))
	}
	return s, nil
}

// List returns the states of all read models of a database, by their names, also in a process that has none of their handlers. Waiting goes up to
// 10,000.
func List(ctx context.Context, box *inbox.Inbox) ([]Status, error) {
	h := box.Handle()
	list, err := pgsql.Collect(h.Patient.Query(ctx, h.DB(ctx), listStatus), scanStatus)
	if err != nil {
		return nil, fmt.Errorf("readmodel: list read models: %w", pgerr.Explain(err))
	}
	return list, nil
}
