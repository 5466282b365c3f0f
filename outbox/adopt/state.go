package adopt

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/outbox"
)

// Counted is where [State.Waiting] stops counting.
const Counted = 10_000

// State is what is known of an old table that is taken over: since a mover first ran, until [Mover.StopForwarding].
type State struct {
	// Table is the name of the table, with its schema.
	Table string `json:"table"`
	// Since is when it was first adopted.
	Since time.Time `json:"since"`
	// Moved is how many rows movers have moved, and MovedAt when they moved the last one, zero for none. Rows that were forwarded are not counted.
	Moved   int64     `json:"moved"`
	MovedAt time.Time `json:"moved_at,omitzero"`
	// LookedAt is when a mover last looked for rows, zero for never. A mover that runs looks several times a second, and notes it every ten seconds.
	LookedAt time.Time `json:"looked_at,omitzero"`
	// WrittenAt is when a mover last saw that rows were written to the table, by the statistics of the server: that old code still writes. They come up to
	// some seconds late. Zero: it has seen none.
	WrittenAt time.Time `json:"written_at,omitzero"`
	// Waiting is how many unsent rows are in the table, up to [Counted]. Oldest is the time of the oldest of them, zero if the mapping has none.
	Waiting int64     `json:"waiting"`
	Oldest  time.Time `json:"oldest,omitzero"`
	// Stay is how many of them no event can be made of, as the last mover found.
	Stay int64 `json:"stay"`
	// Error is why rows were last not moved, "" since one was moved, and FailedAt when that was.
	Error    string    `json:"error,omitempty"`
	FailedAt time.Time `json:"failed_at,omitzero"`
	// Trigger is the trigger of [Mover.Forward].
	Trigger Trigger `json:"trigger"`
	// Fault is why the rows cannot be read: the table is gone, or it does not fit the mapping any more. "" if they can.
	Fault string `json:"fault,omitempty"`
}

// Trigger says whether the rows of a table are forwarded.
type Trigger string

// The states of the trigger.
const (
	Missing  Trigger = "missing"
	Enabled  Trigger = "enabled"
	Disabled Trigger = "disabled"
)

const (
	listAdopted = `
SELECT a.old_table, a.mapping, a.since, a.moved, a.moved_at, a.looked_at, a.stay, a.error, a.failed_at, greatest(a.written_at, CASE
		WHEN c.oid IS NOT NULL AND a.looked_at IS NOT NULL AND a.inserted <> (
			SELECT coalesce(sum(pg_stat_get_tuples_inserted(t.relid)), 0) FROM (SELECT c.oid AS relid UNION SELECT relid FROM pg_partition_tree(c.oid)) t)
		THEN clock_timestamp() END),
	CASE t.tgenabled WHEN 'D' THEN 'disabled' ELSE CASE WHEN t.oid IS NULL THEN 'missing' ELSE 'enabled' END END
FROM %s.outbox_adopted a
LEFT JOIN (pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace) ON n.nspname || '.' || c.relname = a.old_table AND c.relkind IN ('r', 'p')
LEFT JOIN pg_trigger t ON t.tgrelid = c.oid AND t.tgname = $1
ORDER BY a.old_table`

	countWaiting = `SELECT count(*), min(at) FROM (SELECT %s AS at FROM %s r WHERE %s LIMIT %d) x`
)

// States lists the tables that are taken over, by name. It reads at most [Counted] rows of each.
func States(ctx context.Context, store *outbox.Store) ([]State, error) {
	box, err := boxOf(ctx, store)
	if err != nil {
		return nil, err
	}
	db := store.Handle().DB.DB
	var mappings []string
	list, err := pgsql.Collect(pgsql.QueryPlain(ctx, db, fmt.Sprintf(listAdopted, box), pgx.QueryExecModeExec, forwardTrigger),
		func(scan pgsql.Scan, s *State) error {
			var mapping string
			var moved, looked, failed, written sql.NullTime
			err := scan(&s.Table, &mapping, &s.Since, &s.Moved, &moved, &looked, &s.Stay, &s.Error, &failed, &written, &s.Trigger)
			s.MovedAt, s.LookedAt, s.FailedAt, s.WrittenAt = moved.Time, looked.Time, failed.Time, written.Time
			mappings = append(mappings, mapping)
			return err
		})
	if err != nil {
		return nil, wrap("list the tables that are adopted", err)
	}
	for i := range list {
		if err := list[i].count(ctx, db, box, mappings[i]); err != nil {
			list[i].Fault = err.Error()
		}
	}
	return list, nil
}

// count reads the rows that wait.
func (s *State) count(ctx context.Context, db querier, box, mapping string) error {
	m, err := Read(strings.NewReader(mapping))
	if err != nil {
		return err
	}
	p, err := newPlan(ctx, db, m, box)
	if err != nil {
		return err
	}
	var oldest sql.NullTime
	err = db.QueryRowContext(ctx, fmt.Sprintf(countWaiting, p.expr.at, p.table.sql(), p.unsent, Counted), pgx.QueryExecModeExec).Scan(&s.Waiting, &oldest)
	s.Oldest = oldest.Time
	return wrap("count the rows of "+s.Table, err)
}
