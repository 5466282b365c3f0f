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
	// Mend is the SQL that puts it right, to be run by the owner of the tables. A function that it makes anew has to be granted again.
	// Where no statement puts it right, because rows are lost, Mend says what to do instead.
	Mend string
}

// String is one line. Of a statement of several lines, such as that of a function, it has the first.
func (d Difference) String() string {
	first, _, more := strings.Cut(d.Mend, "\n")
	if more {
		first = strings.TrimRight(first, " ") + " ..."
	}
	return d.Object + " " + d.Problem + ": " + first
}

// DifferenceError means that the tables are not as [Up] made them: somebody changed them, or a restore was not complete.
type DifferenceError struct {
	Schema      string
	Differences []Difference
}

// Error has one line for each difference. Statements that are longer than a line are whole in [Difference.Mend].
func (e *DifferenceError) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "migrations: schema %q is not as migrations.Up made it; have the owner of its tables run what follows each colon:", e.Schema)
	for _, d := range e.Differences {
		text.WriteString("\n\t" + d.String())
	}
	return text.String()
}
