package outbox

import (
	"context"
	"fmt"
	"strings"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
)

const (
	// findSent finds the children of outbox_sent that rows are moved to now, and where their last pages begin: 64 MiB, which is
	// about a hundred thousand events. They have no index, and the latest publications are at their end.
	findSent = `
SELECT format('%I.%I', n.nspname, c.relname), greatest(pg_relation_size(c.oid) / current_setting('block_size')::bigint - 8192, 0)
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE i.inhparent = '{schema}.outbox_sent'::regclass AND (c.relname = 'outbox_sent_default'
	OR right(c.relname, 8) IN (to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD'),
		to_char(clock_timestamp() AT TIME ZONE 'UTC' - interval '1 day', 'YYYYMMDD')))`

	// findRow looks everywhere with one snapshot, because rows move. Where the sequence is not known, it is one of the last hundred
	// thousand. LIMIT keeps the planner to one lane after the other, in the order of the index.
	findRow = `
WITH seqs AS MATERIALIZED (
	SELECT CASE WHEN $2::bigint > 0 THEN $2::bigint ELSE pg_sequence_last_value('{schema}.outbox_seq') - 100000 END AS low,
		CASE WHEN $2::bigint > 0 THEN $2::bigint ELSE 9223372036854775807 END AS high)
SELECT EXISTS (SELECT FROM seqs, {schema}.outbox_lane l,
		LATERAL (SELECT FROM {schema}.outbox o WHERE o.lane = l.lane AND o.seq BETWEEN low AND high AND o.id = $1::uuid LIMIT 1) x)
	OR EXISTS (SELECT FROM seqs, {schema}.outbox_lane l,
		LATERAL (SELECT FROM {schema}.outbox_held h WHERE h.lane = l.lane AND h.seq BETWEEN low AND high AND h.id = $1::uuid LIMIT 1) x)
	OR EXISTS (SELECT FROM {schema}.outbox_dead d WHERE d.id = $1::uuid)`

	findInPages = `
	OR EXISTS (SELECT FROM %s s WHERE s.ctid >= '(%d,0)'::tid AND s.id = $1::uuid)`
)

// Find reports whether the first of evs, which were stored by one transaction, is there: waiting, held, dead or
// published. It is the FindSink of package uow. It sees the latest hundred thousand publications. An event that was
// published before them, or was deleted, is not found.
func (s *Store) Find(ctx context.Context, db bun.IDB, evs []event.Envelope) (bool, error) {
	if len(evs) == 0 {
		return false, nil
	}
	statement, err := s.finding(ctx, db)
	if err != nil {
		return false, outboxdb.Wrap("find an event", err)
	}
	var found bool
	err = s.box.AdHoc().QueryRow(ctx, db, statement, []any{evs[0].ID, evs[0].Sequence}, &found)
	return found, outboxdb.Wrap("find an event", err)
}

// finding returns findRow with the tables of published rows as they are now.
func (s *Store) finding(ctx context.Context, db bun.IDB) (string, error) {
	var statement strings.Builder
	statement.WriteString(findRow)
	err := pgsql.Each(s.box.AdHoc().Query(ctx, db, findSent), func(scan pgsql.Scan) error {
		var child string
		var page int64
		if err := scan(&child, &page); err != nil {
			return err
		}
		fmt.Fprintf(&statement, findInPages, child, page)
		return nil
	})
	return statement.String(), err
}
