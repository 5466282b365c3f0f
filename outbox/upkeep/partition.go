package upkeep

import (
	"strings"
	"time"

	"github.com/uptrace/bun"
)

// Partition is a day of published rows that is about to be dropped, as outbox.Config.BeforeDrop gets it. A day has two: of the rows that were recorded on
// it and left in their turn, and of the rows that were published on it out of their turn. One without rows is dropped without a call.
type Partition struct {
	// Name is the name of the table, with its schema and quoted if necessary: ready for SQL. If the day had no
	// partition when its rows were stored, it is the DEFAULT partition, which also has rows of other days.
	Name string
	// Day is the UTC day, as its midnight.
	Day time.Time
	// DB is the transaction that drops the partition. Writes through DB are committed if, and only if, the partition is
	// dropped. From the first write to the end VACUUM removes nothing in the whole database and the relay's watermark
	// does not advance, as with any open transaction that has written. So read first, and write briefly at the end.
	DB bun.IDB

	log       family
	published string
}

// Select returns a query for the rows of the day, without columns yet. It offers the columns of the view
// outbox_published. Read the rows to the end, or close them, before BeforeDrop returns.
func (p Partition) Select() *bun.SelectQuery {
	return p.DB.NewSelect().TableExpr(p.published).Where("child = to_regclass(?) AND within >= ? AND within < ?", p.Name, p.Day, p.Day.AddDate(0, 0, 1))
}

// logTable is the log of events.
const logTable = "outbox"

// family is a table with daily partitions.
type family struct {
	table, column string
	rest          string // the published rows in the DEFAULT child
}

// families has the two tables whose days are dropped, each with a query for the published rows in its DEFAULT child.
func families() []family {
	return []family{
		{logTable, "created_at", `SELECT o.ctid AS place, o.created_at AS within FROM {schema}.outbox_default o JOIN {schema}.outbox_cursor c USING (lane)
		WHERE o.seq <= c.sent OR o.seq <@ c.ahead`},
		{"outbox_sent", "sent_at", `SELECT s.ctid AS place, s.sent_at AS within FROM {schema}.outbox_sent_default s`},
	}
}

// in inserts the names of the family's tables into a statement.
func (f family) in(statement string) string {
	return strings.NewReplacer("{table}", f.table, "{column}", f.column, "{rest}", f.rest).Replace(statement)
}
