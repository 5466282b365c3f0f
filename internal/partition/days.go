// Package partition makes and finds the children of tables that have one for each UTC day. The child of a day is named after its table and the day:
// outbox_20261121. Rows of a day without a child lie in the DEFAULT child.
//
// Read first: days.go:Make and days.go:Expired.
package partition

import (
	"context"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// expired finds the partitions of a table whose day ended before the retention, the oldest first, by
// PostgreSQL's clock.
const expired = `
SELECT format('%I.%I', n.nspname, c.relname), to_date(right(c.relname, 8), 'YYYYMMDD')
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE i.inhparent = '{schema}.{table}'::regclass AND c.relname ~ '^{table}_[0-9]{8}$'
	AND (to_date(right(c.relname, 8), 'YYYYMMDD') + 1)::timestamp AT TIME ZONE 'UTC' <= clock_timestamp() - $1::interval
ORDER BY c.relname`

// Make makes the children of the days from first to last, counted from today. statement makes those of the day that is $1 days from today. If the
// child of a day cannot be made, the others are made all the same; the errors are joined. It waits once for a table that is in use, for up to two
// seconds.
func Make(ctx context.Context, sql *pgsql.Runner, db bun.IDB, statement string, first, last int) error {
	return each(ctx, first, last, func(day int) error {
		// Each day has a transaction of its own, so that the lock on the parent table is held only for a short time.
		_, err := sql.Exec(ctx, db, statement, day)
		return err
	})
}

// Day is the partition of one UTC day.
type Day struct {
	Child string    // the table, with its schema and quoted if necessary: ready for SQL
	Date  time.Time // midnight of the day
}

func (d Day) String() string { return d.Date.Format(time.DateOnly) }

// Expired returns the partitions of days that ended before the retention, the oldest first.
func Expired(ctx context.Context, sql *pgsql.Runner, db bun.IDB, table string, retention time.Duration) ([]Day, error) {
	rows := sql.Query(ctx, db, strings.ReplaceAll(expired, "{table}", table), retention)
	return pgsql.Collect(rows, func(scan pgsql.Scan, d *Day) error { return scan(&d.Child, &d.Date) })
}
