package migrations

import (
	"regexp"
	"slices"
	"strings"
)

// columnParts splits a definition into type, NOT NULL, and the default.
var columnParts = regexp.MustCompile(`^(.*?)( NOT NULL)?( (?:DEFAULT|GENERATED) .*)?$`)

// hasValue reports whether PostgreSQL fills the column if an INSERT does not name it.
func hasValue(f fact) bool { return value(f) != "" }

// value returns how a column gets its value by default: " DEFAULT 0" or " GENERATED ALWAYS AS IDENTITY".
func value(f fact) string { return columnParts.FindStringSubmatch(f.definition)[3] }

// typeOf returns the type of a column, without default and NOT NULL.
func typeOf(f fact) string { return columnParts.FindStringSubmatch(f.definition)[1] }

func isDefault(value string) bool { return strings.HasPrefix(value, " DEFAULT") }

func isIdentity(value string) bool { return strings.HasSuffix(value, " AS IDENTITY") }

func isComputed(value string) bool { return strings.HasPrefix(value, " GENERATED ALWAYS AS (") }

// needsValue reports whether the column cannot be added to a table that has rows.
func needsValue(f fact) bool { return strings.Contains(f.definition, " NOT NULL") && !hasValue(f) }

// column reports differences of type, NOT NULL and default separately.
func (c *comparison) column(w, g fact) {
	want, got := columnParts.FindStringSubmatch(w.definition), columnParts.FindStringSubmatch(g.definition)
	alter := "ALTER TABLE " + c.ident + "." + w.relation() + " ALTER COLUMN " + w.part()
	if isComputed(got[3]) { // the type of a computed column cannot be changed with USING
		c.value(w, g)
	}
	if want[1] != got[1] && !isComputed(want[3]) {
		c.add(w, "is "+got[1]+", should be "+want[1], c.retype(w, g))
	}
	// NOT NULL is reported apart from the type, because each has a statement of its own and they may fail for different
	// reasons: SET NOT NULL fails if a row has NULL.
	if want[2] != got[2] && want[2] == "" {
		c.add(w, "refuses NULL, and should not", alter+" DROP NOT NULL")
	}
	if want[2] != got[2] && want[2] != "" {
		c.add(w, "may be NULL, and should not", alter+" SET NOT NULL")
	}
	if !isComputed(got[3]) {
		c.value(w, g)
	}
}

// retype returns the statement that changes the type of a column. The default may not fit the new type, so it is
// dropped before and set again afterwards.
func (c *comparison) retype(w, g fact) string {
	kind := typeOf(w)
	column := " ALTER COLUMN " + w.part()
	mend := "ALTER TABLE " + c.ident + "." + w.relation()
	if isDefault(value(g)) {
		mend += column + " DROP DEFAULT,"
	}
	mend += column + " TYPE " + kind + " USING " + w.part() + "::" + kind
	if isDefault(value(g)) && isDefault(value(w)) {
		mend += "," + column + " SET" + value(w)
	}
	// PostgreSQL refuses to change a column that a view reads.
	// The view is dropped and made again around the change. Its text comes from the files, and not from the database.
	for _, r := range c.got {
		if r.kind == readsFact && r.part() == w.relation() && slices.Contains(columnsOf(r), w.part()) {
			mend = "DROP VIEW IF EXISTS " + c.ident + "." + r.relation() + "; " + mend + "; CREATE VIEW " + c.text(r)
		}
	}
	return mend
}

// value reports a different default. No repair loses stored values.
func (c *comparison) value(w, g fact) {
	want, got := value(w), value(g)
	if want == got && (!isComputed(want) || typeOf(w) == typeOf(g)) {
		return
	}
	table := c.ident + "." + w.relation()
	alter := "ALTER TABLE " + table + " ALTER COLUMN " + w.part()
	var steps []string
	switch {
	// A computed column stores nothing of its own, so it may be dropped and added again.
	case isComputed(want):
		steps = append(steps, "ALTER TABLE "+table+" DROP COLUMN "+w.part()+", ADD COLUMN "+w.part()+" "+w.definition)
	case isIdentity(want) && isIdentity(got):
		steps = append(steps, alter+" SET"+strings.TrimSuffix(want, " AS IDENTITY"))
	default:
		switch {
		case isIdentity(got):
			steps = append(steps, alter+" DROP IDENTITY")
		case isComputed(got):
			steps = append(steps, alter+" DROP EXPRESSION")
		case isDefault(got) && !isDefault(want):
			steps = append(steps, alter+" DROP DEFAULT")
		}
		switch {
		case isDefault(want):
			steps = append(steps, alter+" SET"+want)
		case isIdentity(want): // its sequence would begin at 1 although there are rows
			steps = append(steps, alter+" ADD"+want, "SELECT setval(pg_get_serial_sequence("+literal(table)+", "+literal(w.part())+
				"), coalesce(max("+w.part()+"), 0) + 1, false) FROM "+table)
		}
	}
	c.add(w, "has "+orNoDefault(got)+", should have "+orNoDefault(want), strings.Join(steps, "; "))
}

func orNoDefault(value string) string {
	if value == "" {
		return "no default"
	}
	return strings.TrimPrefix(value, " ")
}

// literal quotes a text as an SQL literal. The names come from the catalog and may contain quotes.
func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
