package adopt

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/internal/pgsql"
)

const (
	rehearsed     = 10 // rows
	rehearsals    = 3  // tries, if others hold the rows
	boundRehearse = `SET LOCAL lock_timeout = '1s'`
)

// errRehearsed ends the transaction of a rehearsal.
var errRehearsed = errors.New("rolled back on purpose")

// rehearse moves a few rows and rolls that back. It returns the error with which a mover would fail. It returns nil if somebody else holds the rows.
func (m *Mover) rehearse(ctx context.Context) error {
	for try := 1; ; try++ {
		err := m.store.Handle().DB.RunInTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(ctx context.Context, tx bun.Tx) error {
			if _, err := tx.Tx.ExecContext(ctx, boundRehearse); err != nil {
				return err
			}
			h, err := m.move(ctx, tx, rehearsed)
			if err == nil {
				err = m.note(ctx, tx, h)
			}
			m.noted = time.Time{} // nothing was noted
			if err != nil {
				return err
			}
			return errRehearsed
		})
		switch {
		case errors.Is(err, errRehearsed):
			return nil
		case !isPassing(err):
			return wrap("move rows of "+m.plan.table.label(), err)
		case try == rehearsals:
			return nil
		}
		if err := backoff.Wait(ctx, m.cfg.Interval); err != nil {
			return err
		}
	}
}

const (
	// fewRows is the size of a table, in rows as the statistics have it, below which no index is missed.
	fewRows = 10_000

	tableRows = `SELECT coalesce(sum(greatest(c.reltuples, 0)), 0)::bigint FROM pg_class c
WHERE c.relkind = 'r' AND (c.oid = $1::regclass OR c.oid IN (SELECT relid FROM pg_partition_tree($1::regclass)))`
	// byIndex makes the planner choose an index if one fits.
	byIndex = `SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off; SET LOCAL max_parallel_workers_per_gather = 0`
)

// advise says what to know before rows are moved.
func (p *plan) advise(ctx context.Context, db *bun.DB) (advice []string, err error) {
	if len(p.table.key) == 0 {
		advice = append(advice, "the table has no primary key, which --forward needs: make one before the switch")
	}
	var rows int64
	if err := db.DB.QueryRowContext(ctx, tableRows, pgx.QueryExecModeExec, p.table.sql()).Scan(&rows); err != nil {
		return nil, wrap("read the size of "+p.table.label(), err)
	}
	if rows < fewRows {
		return advice, nil
	}
	fits, err := p.hasIndex(ctx, db)
	if err == nil && !fits {
		advice = append(advice, fmt.Sprintf("no index fits unsent and order, so each batch reads the whole table (%d rows) and sorts it: "+
			"CREATE INDEX CONCURRENTLY ON %s (%s)%s", rows, p.table.sql(), withoutAlias(p.order), withoutAlias(p.indexed())))
	}
	return advice, err
}

// indexed is the condition of the advised index: that of unsent alone, because one in SQL may be of a kind that no index can have.
func (p *plan) indexed() string {
	if len(p.mapping.Unsent) == 0 {
		return ""
	}
	return " WHERE " + (&compiler{table: p.table, box: p.box}).unsent(&Mapping{Unsent: p.mapping.Unsent})
}

func withoutAlias(text string) string { return strings.ReplaceAll(text, `r."`, `"`) }

// hasIndex reports whether the first unsent rows can be read from an index, without a sort and without reading rows that were sent.
func (p *plan) hasIndex(ctx context.Context, db *bun.DB) (fits bool, err error) {
	err = db.RunInTx(ctx, &sql.TxOptions{ReadOnly: true}, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.Tx.ExecContext(ctx, byIndex); err != nil {
			return err
		}
		text := fmt.Sprintf("EXPLAIN (COSTS OFF) SELECT %s FROM %s r%s ORDER BY %s LIMIT 500", p.order, p.table.sql(), p.indexed(), p.order)
		lines, err := pgsql.Collect(pgsql.QueryPlain(ctx, tx.Tx, text, pgx.QueryExecModeExec), func(scan pgsql.Scan, line *string) error { return scan(line) })
		plan := strings.Join(lines, "\n")
		fits = strings.Contains(plan, "Index")
		for _, bad := range []string{"Seq Scan", "Sort Key", "Filter:"} {
			fits = fits && !strings.Contains(plan, bad)
		}
		return err
	})
	return fits, wrap("look for an index of "+p.table.label(), err)
}
