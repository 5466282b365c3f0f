package upkeep

import (
	"strings"
	"time"

	"github.com/uptrace/bun"
)

// Partition is a day of published rows that is about to be dropped, as outbox.Config.BeforeDrop gets it. A day has two: of the rows that were recorded on
// it and left in their turn, and of the rows that were published on it out of their turn. One without rows is dropped without a call.
type Partition struct {
	// Name is the table, with its schema and quoted where need be: ready for SQL. It is the child of the day, or the DEFAULT
	// child with rows of other days as well, if there was none when they were stored.
	Name string
	// Day is the UTC day, at midnight.
	Day time.Time
	// DB is the transaction that drops it. What is written through DB is there if and only if the partition is gone. From the
	// first write to the end, VACUUM removes nothing in the whole database and the relay's low-water mark stands still, as with
	// any transaction that writes: read first, write briefly at the end.
	DB bun.IDB

	log       family
	published string
}

// Select is a query for the rows of the day, without columns yet: they are those of the view outbox_published. Read them to the end,
// or close them, before BeforeDrop returns.
func (p Partition) Select() *bun.SelectQuery {
	return p.DB.NewSelect().TableExpr(p.published).Where("child = to_regclass(?) AND within >= ? AND within < ?", p.Name, p.Day, p.Day.AddDate(0, 0, 1))
}

// logTable is the log of events.
const logTable = "outbox"

// family is a table with daily children.
type family struct {
	table, column string
	rest          string // the published rows in the DEFAULT child
}

func families() []family {
	return []family{
		{logTable, "created_at", `SELECT o.ctid AS place, o.created_at AS within FROM {schema}.outbox_default o JOIN {schema}.outbox_cursor c USING (lane)
		WHERE o.seq <= c.sent OR o.seq <@ c.ahead`},
		{"outbox_sent", "sent_at", `SELECT s.ctid AS place, s.sent_at AS within FROM {schema}.outbox_sent_default s`},
	}
}

// in fills a statement in.
func (f family) in(statement string) string {
	return strings.NewReplacer("{table}", f.table, "{column}", f.column, "{rest}", f.rest).Replace(statement)
}
