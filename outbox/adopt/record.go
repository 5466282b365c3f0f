package adopt

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"
	"go.yaml.in/yaml/v3"
)

// noteInterval is how often a mover without work notes that it looks for rows. A mover that has not noted anything for a minute does not run.
const noteInterval = 10 * time.Second

const (
	// noteMove enters the table, or what a mover did there. Movers take turns, so none waits for another one here.
	noteMove = `
INSERT INTO %s.outbox_adopted AS a (old_table, mapping, moved, moved_at, looked_at, stay, inserted)
SELECT $1::text, $2::text, $3::bigint, CASE WHEN $3::bigint > 0 THEN clock_timestamp() END, clock_timestamp(), $4::bigint,
	(SELECT coalesce(sum(pg_stat_get_tuples_inserted(t.relid)), 0)
		FROM (SELECT $5::regclass AS relid UNION SELECT relid FROM pg_partition_tree($5::regclass)) t)
ON CONFLICT (old_table) DO UPDATE SET mapping = excluded.mapping, moved = a.moved + excluded.moved, moved_at = coalesce(excluded.moved_at, a.moved_at),
	looked_at = excluded.looked_at, stay = excluded.stay, inserted = excluded.inserted, error = '',
	written_at = CASE WHEN a.inserted <> excluded.inserted THEN clock_timestamp() ELSE a.written_at END`

	noteError = `
INSERT INTO %s.outbox_adopted AS a (old_table, mapping, looked_at, error, failed_at) SELECT $1::text, $2::text, clock_timestamp(), $3::text, clock_timestamp()
ON CONFLICT (old_table) DO UPDATE SET looked_at = excluded.looked_at, error = excluded.error, failed_at = excluded.failed_at`
)

// note enters in outbox_adopted what the transaction has moved.
func (m *Mover) note(ctx context.Context, tx bun.Tx, h haul) error {
	if len(h.places)+len(h.problems) == 0 && time.Since(m.noted) < noteInterval {
		return nil
	}
	mapping, err := m.plan.mapping.text()
	if err != nil {
		return err
	}
	_, err = tx.Tx.ExecContext(ctx, fmt.Sprintf(noteMove, m.plan.box), pgx.QueryExecModeExec, m.plan.table.label(), mapping, int64(len(h.places)),
		int64(len(m.stay.byPlace)+len(h.problems)), m.plan.table.sql())
	m.noted = time.Now()
	return err
}

// noteError enters why rows are not moved. It does so as well as it can: often the reason is the database.
func (m *Mover) noteError(ctx context.Context, failed error) {
	if time.Since(m.noted) < noteInterval {
		return
	}
	m.noted = time.Now()
	ctx, cancel := context.WithTimeout(ctx, noteInterval/2)
	defer cancel()
	mapping, err := m.plan.mapping.text()
	if err == nil {
		_, err = m.store.Handle().DB.DB.ExecContext(ctx, fmt.Sprintf(noteError, m.plan.box), pgx.QueryExecModeExec, m.plan.table.label(), mapping,
			failed.Error())
	}
	if err != nil {
		m.store.Telemetry().Logger.DebugContext(ctx, "oncebox: the error could not be noted", "error", err)
	}
}

// text is the mapping in YAML.
func (m *Mapping) text() (string, error) {
	var b strings.Builder
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(m); err != nil {
		return "", fmt.Errorf("adopt: write the mapping: %w", err)
	}
	return b.String(), nil
}
