package migrations

import (
	"regexp"
	"slices"
	"strings"
)

// comparison collects the differences of one schema.
type comparison struct {
	place

	sources   map[string]source
	want, got map[string]fact // by kind and name
	found     []Difference
}

// compare returns how a schema differs from what it should be: first the objects that are missing or different, and then the surplus ones. An
// object that depends on a missing one is compared when that exists again. An object that somebody added, and that refuses no row of oncebox, is
// not a difference: a plain index, a column that may be NULL or has a default.
func compare(p place, made map[string]source, want, got []fact) []Difference {
	c := &comparison{place: p, sources: made, want: byName(want), got: byName(got)}
	c.sameConstraints()
	c.renamedColumns()
	for _, w := range causesFirst(want) {
		g, there := c.got[key(w)]
		switch {
		case w.kind == optionFact && there: // operators may change its value
		case there && (same(w, g) || c.waits(w)):
		case w.kind == bodyFact && c.differs(functionFact+" "+w.name): // the function itself is reported, and its repair includes the body
		case w.kind == columnFact && there:
			c.column(w, g)
		case there:
			c.add(w, problem(w, g), c.replace(w, g))
		case c.lost(w) || c.waits(w):
		case c.taken(w.name) != "":
			c.add(w, "is a "+c.taken(w.name)+", should be a "+w.kind, c.makeRoom(w))
		case w.kind == readsFact:
			c.add(w, "reads nothing of "+w.part()+", should read "+w.definition, c.replace(w, g))
		default:
			c.add(w, "is missing", c.create(w))
		}
	}
	for _, g := range got {
		if _, ours := c.want[key(g)]; !ours {
			c.extra(g)
		}
	}
	return c.found
}

// margin is the space at the beginning of a line. A function that was made by a mend as an error prints it has more.
var margin = regexp.MustCompile(`(?m)^[ \t]+`)

// same ignores indentation in bodies only: in other definitions PostgreSQL writes the spaces itself.
func same(w, g fact) bool {
	return w.definition == g.definition ||
		w.kind == bodyFact && margin.ReplaceAllString(w.definition, "") == margin.ReplaceAllString(g.definition, "")
}

// differs reports whether the definitions of one object are unequal, for a key of the maps.
func (c *comparison) differs(key string) bool { return c.got[key].definition != c.want[key].definition }

func (c *comparison) add(f fact, problem, mend string) {
	// One statement repairs several differences of a view, so it is reported once.
	if !slices.ContainsFunc(c.found, func(d Difference) bool { return d.Object == object(f) && d.Mend == mend }) {
		c.found = append(c.found, Difference{Object: object(f), Problem: problem, Mend: mend})
	}
}

// key is unique: a relation and its parts have different kinds, and names are unique within a kind.
func key(f fact) string { return f.kind + " " + f.name }

func byName(list []fact) map[string]fact {
	m := map[string]fact{}
	for _, f := range list {
		m[key(f)] = f
	}
	return m
}

// sameConstraints takes constraints of one meaning for the same, whatever they are called: PostgreSQL gives a primary key another name
// where an index has it already, and a table of somebody else's that was renamed keeps the names of its indexes.
func (c *comparison) sameConstraints() {
	for k, w := range c.want {
		if _, there := c.got[k]; there || w.kind != constraintFact {
			continue
		}
		for other, g := range c.got {
			_, ours := c.want[other]
			if !ours && g.kind == w.kind && g.relation() == w.relation() && g.definition == w.definition {
				delete(c.got, other)
				c.got[k], c.want[other] = w, g
				break
			}
		}
	}
}

// lost reports whether a part need not be reported, because the object that it belongs to is missing, which
// is reported already.
func (c *comparison) lost(w fact) bool {
	var whole string
	switch w.kind {
	case tableFact, viewFact, sequenceFact, functionFact:
		return false
	case readsFact:
		whole = viewFact + " " + w.relation()
	case partitionFact:
		// A partition whose table is missing cannot be attached. If only the parent is missing, that is reported.
		if _, there := c.got[tableFact+" "+w.part()]; !there {
			return true
		}
		fallthrough
	default:
		whole = tableFact + " " + w.relation()
	}
	_, there := c.got[whole]
	return !there
}

// extra checks an object that exists and does not belong to oncebox.
func (c *comparison) extra(g fact) {
	if c.detached(g) || c.taken(g.relation()) != "" {
		return
	}
	on := c.ident + "." + g.relation()
	switch g.kind {
	case columnFact:
		// A column without a default that refuses NULL makes each INSERT of oncebox fail.
		if needsValue(g) {
			c.add(g, "was not made by oncebox, and rows without a value for it are refused", "ALTER TABLE "+on+" ALTER COLUMN "+g.part()+" DROP NOT NULL")
		}
	case constraintFact:
		c.add(g, "was not made by oncebox, and may refuse rows: "+g.definition, "ALTER TABLE "+on+" DROP CONSTRAINT "+g.part())
	case indexFact:
		// A plain index costs time and refuses nothing, so it is left alone.
		if strings.HasPrefix(g.definition, "CREATE UNIQUE ") {
			c.add(g, "was not made by oncebox, and may refuse rows, because it is unique", "DROP INDEX "+c.ident+"."+g.part())
		}
	case triggerFact, ruleFact:
		// Both run foreign code inside the statements of oncebox.
		c.add(g, "was not made by oncebox", "DROP "+strings.ToUpper(g.kind)+" "+g.part()+" ON "+on)
	case securityFact:
		// Row level security hides rows from the service, which would then take them for published or handled.
		c.add(g, "has row level security, which may hide rows", "ALTER TABLE "+on+" DISABLE ROW LEVEL SECURITY")
	case optionFact:
		// Without autovacuum the outbox keeps its dead rows, and each look of the relay becomes slower.
		if strings.HasSuffix(g.name, ".autovacuum_enabled") && !slices.Contains([]string{"true", "on", "yes", "1"}, g.definition) {
			c.add(g, "is "+g.definition+", so dead rows stay", "ALTER TABLE "+on+" RESET (autovacuum_enabled)")
		}
	case functionFact:
		// PostgreSQL chooses among functions of one name by the types of the arguments (10.3), so another
		// one may fit a call better.
		c.add(g, "was not made by oncebox, and may be called in place of oncebox's function with this name", "DROP ROUTINE "+c.ident+"."+g.name)
	case publicFact:
		if _, ours := c.want[functionFact+" "+g.name]; ours {
			// EXECUTE belongs to PUBLIC by default (PostgreSQL, 5.8), so a function that was made anew has it again.
			c.add(g, "may be called by every role, with the rights of its owner", "REVOKE ALL ON ROUTINE "+c.ident+"."+g.name+" FROM PUBLIC")
		}
	case ownerFact:
		c.owner(g)
	case rightFact:
		c.right(g)
	}
}

// detached reports whether the fact is about a partition that is detached from its table. The detachment is reported,
// and not the partition's own parts.
func (c *comparison) detached(g fact) bool {
	for k, w := range c.want {
		if _, there := c.got[k]; !there && w.kind == partitionFact && w.part() == g.relation() {
			return true
		}
	}
	return false
}

// owner reports a wrong owner. The name of the fact begins with the kind of object; the definition has the two roles.
func (c *comparison) owner(g fact) {
	kind, name, _ := strings.Cut(g.name, " ")
	is, should, _ := strings.Cut(g.definition, "\x01") // a character that names of roles do not contain
	c.found = append(c.found, Difference{
		Object:  strings.ToLower(kind) + " " + name,
		Problem: "belongs to " + is + ", while oncebox's other objects belong to " + should,
		Mend:    "ALTER " + strings.Replace(kind, "FUNCTION", "ROUTINE", 1) + " " + c.ident + "." + name + " OWNER TO " + should,
	})
}

// right reports rights that the owner lacks. The name of the fact begins with the kind of object; the definition has
// the rights and the owner.
func (c *comparison) right(g fact) {
	kind, name, _ := strings.Cut(g.name, " ")
	rights, owner, _ := strings.Cut(g.definition, "\x01")
	c.found = append(c.found, Difference{
		Object:  strings.ToLower(kind) + " " + name,
		Problem: "does not give its owner the right to " + rights,
		Mend: "GRANT " + rights + " ON " + strings.NewReplacer("FUNCTION", "ROUTINE", "VIEW", "TABLE").Replace(kind) + " " + c.ident + "." + name +
			" TO " + owner,
	})
}
