package migrations

import (
	"fmt"
	"strings"
)

// Difference is something in the schema that is not as [Up] made it.
type Difference struct {
	// Object is what it is about: "index outbox_held_due", "column outbox.lane".
	Object string
	// Problem is what is wrong with it: "is missing", "is integer, should be smallint".
	Problem string
	// Mend is the SQL that puts it right, to be run by the owner of the tables. A function or view that it makes anew has to be granted again.
	// Where no statement puts it right, because rows are lost, Mend says what to do instead.
	Mend string
}

// String is a line that says what is wrong, and below it the whole mend, indented by a tab.
func (d Difference) String() string {
	return d.Object + " " + d.Problem + indent("\n"+d.Mend)
}

// indent moves every line but the first by a tab.
func indent(text string) string { return strings.ReplaceAll(text, "\n", "\n\t") }

// DifferenceError means that the tables are not as [Up] made them: somebody changed them, or a restore was not complete.
type DifferenceError struct {
	Schema      string
	Differences []Difference
}

// Error has a line for each difference, and below it the whole mend, indented by two tabs.
func (e *DifferenceError) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "migrations: schema %q is not as migrations.Up made it. Below each difference is what the owner of its tables has to run:", e.Schema)
	for _, d := range e.Differences {
		text.WriteString(indent("\n" + d.String()))
	}
	return text.String()
}
