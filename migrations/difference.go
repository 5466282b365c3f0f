package migrations

import (
	"fmt"
	"strings"
)

// Difference is a difference between the schema and the result of [Up].
type Difference struct {
	// Object names the object: "index outbox_held_due", "column outbox.lane".
	Object string
	// Problem is the difference: "is missing", or "is integer, should be smallint".
	Problem string
	// Mend is the SQL that repairs it, for the owner of the tables. A function or view that it makes anew has to be
	// granted again. If no statement can repair it, because rows are lost, Mend says what to do instead.
	Mend string
}

// String returns a line with the difference, and below it the whole repair, indented by a tab.
func (d Difference) String() string {
	return d.Object + " " + d.Problem + indent("\n"+d.Mend)
}

// indent indents all lines except the first by a tab.
func indent(text string) string { return strings.ReplaceAll(text, "\n", "\n\t") }

// DifferenceError means that the tables differ from the result of [Up]: somebody has changed them, or a
// restore was not complete.
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
