package migrations

import "strings"

// object returns the name of a fact's object, for people.
func object(f fact) string {
	switch f.kind {
	case indexFact:
		return "index " + f.part()
	case constraintFact, optionFact, partitionFact:
		return f.kind + " " + f.part() + " of " + f.relation()
	case triggerFact, ruleFact:
		return f.kind + " " + f.part() + " on " + f.relation()
	case bodyFact, publicFact:
		return "function " + f.name
	case readsFact:
		return "view " + f.relation()
	case partitionedFact, securityFact:
		return "table " + f.name
	default:
		return f.kind + " " + f.name
	}
}

// problem describes how an object differs from what it should be.
func problem(w, g fact) string {
	switch {
	case w.kind == bodyFact:
		return "has another body"
	case w.kind == viewFact:
		return "has other columns"
	case w.kind == readsFact:
		return "reads " + g.definition + " of " + w.part() + ", should read " + w.definition
	case g.definition == w.definition+invalid:
		return "is not valid"
	default:
		return "is " + g.definition + ", should be " + w.definition
	}
}

// invalid marks an index whose CREATE INDEX CONCURRENTLY failed.
const invalid = " INVALID"

const (
	anew = "no statement mends that: give it its name back if it was renamed, restore it with its rows from a backup, " +
		"or make the tables anew in an empty schema"
	emptyOnly = "its values are lost: restore them from a backup, or make the tables anew in an empty schema. In a table without rows " +
		"this makes it: "
)

// create returns the statement that makes a missing object.
func (c *comparison) create(w fact) string {
	on := c.ident + "." + w.relation()
	switch w.kind {
	case columnFact:
		add := "ALTER TABLE " + on + " ADD COLUMN " + w.part() + " " + w.definition
		if needsValue(w) {
			return emptyOnly + add
		}
		return add
	case constraintFact:
		return "ALTER TABLE " + on + " ADD CONSTRAINT " + w.part() + " " + w.definition
	case indexFact:
		return w.definition
	case optionFact:
		return "ALTER TABLE " + on + " SET (" + w.part() + " = " + w.definition + ")"
	case partitionFact:
		return "ALTER TABLE " + on + " ATTACH PARTITION " + c.ident + "." + w.part() + " " + w.definition
	case viewFact:
		return "CREATE VIEW " + c.text(w)
	case functionFact:
		return "CREATE FUNCTION " + c.text(w) + c.revoke(w)
	default:
		return anew
	}
}

// replace returns the statement that changes an object into what it should be.
func (c *comparison) replace(w, g fact) string {
	on := c.ident + "." + w.relation()
	switch w.kind {
	case tableFact:
		return "ALTER TABLE " + on + " SET " + map[string]string{"permanent": "LOGGED", "unlogged": "UNLOGGED"}[w.definition]
	case partitionFact:
		return "ALTER TABLE " + on + " DETACH PARTITION " + c.ident + "." + w.part() + "; " + c.create(w)
	case constraintFact:
		return "ALTER TABLE " + on + " DROP CONSTRAINT " + w.part() + ", ADD CONSTRAINT " + w.part() + " " + w.definition
	case indexFact:
		if g.definition == w.definition+invalid {
			return "REINDEX INDEX " + c.ident + "." + w.part()
		}
		return "DROP INDEX " + c.ident + "." + w.part() + "; " + w.definition
	case sequenceFact:
		return "ALTER SEQUENCE " + on + " " + w.definition
	case viewFact, readsFact:
		return "DROP VIEW " + on + "; CREATE VIEW " + c.text(w)
	case functionFact:
		// CREATE OR REPLACE keeps the owner and the grants, and changes neither names of arguments nor the result.
		if signature(w) != signature(g) {
			return "DROP ROUTINE " + c.ident + "." + w.name + "; " + c.create(w)
		}
		return "CREATE OR REPLACE FUNCTION " + c.text(w)
	case bodyFact:
		return "CREATE OR REPLACE FUNCTION " + c.text(w)
	default:
		return anew
	}
}

// text returns the statement that makes a function or a view, without its first words.
func (c *comparison) text(w fact) string { return c.sources[function(w.relation())].statement(c.place) }

func (c *comparison) revoke(w fact) string {
	if !strings.Contains(w.definition, " SECURITY DEFINER") {
		return ""
	}
	return "\nREVOKE ALL ON FUNCTION " + c.ident + "." + w.name + " FROM PUBLIC"
}

func signature(f fact) string {
	before, _, _ := strings.Cut(f.definition, " LANGUAGE ")
	return before
}
