package failures

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/oncebox/oncebox/internal/cause"
	"github.com/oncebox/oncebox/internal/pgsql"
)

const (
	// Most is the largest number of fingerprints that are read of a table. More than that means that the errors differ by something that is no number,
	// id, address or quotation.
	Most = 1000
	// Counted is how many rows of a table are read to count its groups. They are divided among the groups, and each has at least 100. So a list over
	// millions of failures is as fast as a short one.
	Counted = 10_000
	// joined is how many of these rows are joined with another table, where [Table.Join] has one. A joined row costs ten times as much as a counted row,
	// and the rows after them nearly all count.
	joined = 2000
	// fewest is the smallest bound of a group's count.
	fewest = 100
)

// Table says how the failures of one table are read, for packages outbox and inbox. In the texts a failure is called f.
type Table struct {
	// Name is the table. It has an index that begins with fingerprint and Since, of all rows with a fingerprint.
	Name string
	// Since is the column with the time of a failure.
	Since string
	// Join has the joins that Counts, Next and Example need.
	Join string
	// Counts is the condition for a row that counts.
	Counts string
	// Next is the time of the next try.
	Next string
	// Example lists the columns of an [Example]: id, message key, consumer, tenant, source, topic, type, ordering key, holds, attempts,
	// error, and the process that failed.
	Example string
	// By is the process that failed. "": it is not read.
	By string
}

const (
	// fingerprints goes from one fingerprint to the next in the index. A SELECT DISTINCT would read all rows.
	fingerprints = `
WITH RECURSIVE every (fingerprint) AS (
	(SELECT f.fingerprint FROM %[1]s f WHERE f.fingerprint <> '' ORDER BY f.fingerprint LIMIT 1)
	UNION ALL
	SELECT (SELECT f.fingerprint FROM %[1]s f WHERE f.fingerprint <> '' AND f.fingerprint > e.fingerprint ORDER BY f.fingerprint LIMIT 1)
	FROM every e WHERE e.fingerprint IS NOT NULL)
SELECT fingerprint FROM every WHERE fingerprint IS NOT NULL LIMIT $1::int`

	// tallies counts the failures of each fingerprint among its $2 earliest rows, and adds up to $3 later rows. The latest is the example.
	tallies = `
SELECT s.fingerprint, c.n + later.n, c.looked + later.n, c.first, c.next, c.processes, x.*
FROM unnest($1::text[]) s (fingerprint)
CROSS JOIN LATERAL (
	SELECT count(*) FILTER (WHERE %[4]s) AS n, count(*) AS looked, min(f.%[2]s) FILTER (WHERE %[4]s) AS first, min(%[5]s) FILTER (WHERE %[4]s) AS next,
		%[7]s AS processes
	FROM (SELECT f.* FROM %[1]s f WHERE f.fingerprint = s.fingerprint AND f.fingerprint <> '' ORDER BY f.fingerprint, f.%[2]s LIMIT $2::int) f %[3]s) c
CROSS JOIN LATERAL (
	SELECT count(*) AS n FROM (SELECT FROM %[1]s f WHERE f.fingerprint = s.fingerprint AND f.fingerprint <> '' ORDER BY f.fingerprint, f.%[2]s
		OFFSET $2::int LIMIT $3::int) f) later
CROSS JOIN LATERAL (
	SELECT f.%[2]s AS last, %[6]s FROM %[1]s f %[3]s
	WHERE f.fingerprint = s.fingerprint AND f.fingerprint <> '' AND %[4]s ORDER BY f.fingerprint DESC, f.%[2]s DESC LIMIT 1) x`
)

// Fingerprints returns the statement that lists fingerprints. Its argument is the largest number of them.
func (t *Table) Fingerprints() string { return fmt.Sprintf(fingerprints, t.Name) }

// Tallies returns the statement that counts the failures of some fingerprints. Its arguments are the fingerprints, how many rows of each are joined, and
// how many more are counted.
func (t *Table) Tallies() string {
	by := "''"
	if t.By != "" {
		by = "coalesce(string_agg(DISTINCT nullif(" + t.By + ", ''), E'\\n') FILTER (WHERE " + t.Counts + "), '')"
	}
	return fmt.Sprintf(tallies, t.Name, t.Since, t.Join, t.Counts, t.Next, t.Example, by)
}

// tally is what a table has of a group.
type tally struct {
	fingerprint string
	Tally
}

// read counts the failures of one fingerprint, or of all if it is "".
func (g *Groups) read(ctx context.Context, t *Table, fingerprint string) ([]tally, error) {
	names := []string{fingerprint}
	if fingerprint == "" {
		rows := g.run.Query(ctx, g.db(ctx), t.Fingerprints(), Most)
		var err error
		if names, err = pgsql.Collect(rows, func(scan pgsql.Scan, name *string) error { return scan(name) }); err != nil || len(names) == 0 {
			return nil, err
		}
	}
	bound := max(Counted/len(names), fewest)
	earliest := bound + 1
	if t.Join != "" {
		earliest = min(earliest, max(joined/len(names), fewest))
	}
	rows := g.run.Query(ctx, g.db(ctx), t.Tallies(), names, earliest, bound+1-earliest)
	return pgsql.Collect(rows, func(scan pgsql.Scan, y *tally) error {
		var first, next sql.NullTime
		var looked int
		var processes string
		x := &y.Example
		err := scan(&y.fingerprint, &y.Count, &looked, &first, &next, &processes, &y.Last, &x.ID, &x.Ref.MessageKey, &x.Ref.Consumer,
			&x.TenantID, &x.Ref.Source,
			&x.Topic, &x.Type, &x.Key, &x.Holds, &x.Attempts, &x.Error, &x.FailedBy)
		y.FailedBy = strings.FieldsFunc(processes, func(r rune) bool { return r == '\n' })
		x.Ref.TenantID, y.First, y.Next = x.TenantID, first.Time, next.Time
		// None of the earliest rows may count, but the latest does.
		if y.More = looked > bound; y.Count == 0 {
			y.Count, y.First = 1, y.Last
		}
		y.Count = min(y.Count, bound)
		return err
	})
}

// groupOf returns a group with the place and the cause of one of its failures.
func groupOf(y *tally) *Group {
	x := &y.Example
	g := &Group{Fingerprint: y.fingerprint, Consumer: x.Ref.Consumer, Type: x.Type, Cause: cause.Of(x.Error)}
	if g.Consumer == "" {
		g.Topic = x.Topic
	}
	return g
}
