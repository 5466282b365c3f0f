package migrations

import (
	"regexp"
	"slices"
	"strings"
)

// causesFirst puts tables and sequences before the objects that depend on them.
func causesFirst(want []fact) []fact {
	var causes, others []fact
	for _, f := range want {
		if f.kind == tableFact || f.kind == sequenceFact {
			causes = append(causes, f)
		} else {
			others = append(others, f)
		}
	}
	return append(causes, others...)
}

// waits reports whether a repair of w would fail because it needs an object that is missing and that no statement can
// make. Each table has a column that rows need, so a view waits for a table by its columns.
func (c *comparison) waits(w fact) bool {
	for _, m := range c.want {
		if _, there := c.got[key(m)]; there {
			continue
		}
		switch {
		case m.kind == tableFact && w.kind == constraintFact && strings.Contains(w.definition, " REFERENCES "+c.ident+"."+m.name+"("):
			return true
		case m.kind == sequenceFact && w.kind == columnFact && strings.Contains(value(w), "."+m.name+"'::regclass"):
			return true
		case m.kind == columnFact && needsValue(m) && (c.reads(w, m.relation(), m.part()) || c.uses(w, m)):
			return true
		}
	}
	return false
}

// reads reports whether w is about a view that reads a column of a table.
func (c *comparison) reads(w fact, table, column string) bool {
	r, ok := c.want[readsFact+" "+w.relation()+"."+table]
	return ok && (w.kind == viewFact || w.kind == readsFact) && slices.Contains(columnsOf(r), column)
}

// uses reports whether w is a constraint or an index on a column.
func (c *comparison) uses(w, column fact) bool {
	return (w.kind == constraintFact || w.kind == indexFact) && w.relation() == column.relation() && word(column.part()).MatchString(w.definition)
}

// columnsOf are the columns of a table that a view reads.
func columnsOf(reads fact) []string { return strings.Split(reads.definition, ", ") }

// word matches a whole column name. A quoted name has no word boundary at its ends.
func word(name string) *regexp.Regexp {
	if strings.HasPrefix(name, `"`) {
		return regexp.MustCompile(regexp.QuoteMeta(name))
	}
	return regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`)
}

// renamedColumns finds columns that were renamed. The values of a required column exist in no other place,
// so adding the column anew would lose them. Two columns with the same definition could be confused, so
// then they count as missing.
func (c *comparison) renamedColumns() {
	missing, others := map[string][]fact{}, map[string][]fact{}
	for k, w := range c.want {
		if _, there := c.got[k]; !there && w.kind == columnFact && needsValue(w) {
			missing[w.relation()+" "+w.definition] = append(missing[w.relation()+" "+w.definition], w)
		}
	}
	for k, g := range c.got {
		if _, ours := c.want[k]; !ours && g.kind == columnFact {
			others[g.relation()+" "+g.definition] = append(others[g.relation()+" "+g.definition], g)
		}
	}
	for k, m := range missing {
		if len(m) == 1 && len(others[k]) == 1 {
			c.renamed(m[0], others[k][0])
		}
	}
	slices.SortFunc(c.found, func(a, b Difference) int { return strings.Compare(a.Object, b.Object) })
}

// renamed reports that w is now called g, and treats g as w from then on: definitions follow a renamed column.
func (c *comparison) renamed(w, g fact) {
	c.add(w, "is called "+g.part(), "ALTER TABLE "+c.ident+"."+w.relation()+" RENAME COLUMN "+g.part()+" TO "+w.part())
	c.got[key(w)], c.want[key(g)] = w, g
	for k, f := range c.got {
		switch {
		case c.uses(f, g):
			f.definition = word(g.part()).ReplaceAllLiteralString(f.definition, w.part())
		case f.kind == readsFact && f.part() == g.relation():
			columns := strings.Split(word(g.part()).ReplaceAllLiteralString(f.definition, w.part()), ", ")
			slices.Sort(columns)
			f.definition = strings.Join(columns, ", ")
		}
		c.got[k] = f
	}
}

// taken returns the kind of the relation that has the name of one of oncebox's relations and is of another kind.
func (c *comparison) taken(name string) string {
	lost, is := false, c.got[otherFact+" "+name].definition
	for _, kind := range []string{tableFact, viewFact, sequenceFact} {
		_, want := c.want[kind+" "+name]
		_, got := c.got[kind+" "+name]
		lost = lost || want && !got
		if got {
			is = kind
		}
	}
	if !lost {
		return ""
	}
	return is
}

// makeRoom returns the statements that rename the object with the name of w, and make w.
func (c *comparison) makeRoom(w fact) string {
	rename := "ALTER " + strings.ToUpper(c.taken(w.name)) + " " + c.ident + "." + w.name + " RENAME TO " + w.name + "_other"
	if w.kind == viewFact {
		return rename + "; " + c.create(w)
	}
	return rename + "; then: " + anew
}
