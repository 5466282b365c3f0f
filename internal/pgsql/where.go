package pgsql

import (
	"fmt"
	"strings"
)

// Where collects conditions and their arguments. Values are always arguments; only constants get into the text. The zero value has no condition.
type Where struct {
	Args []any

	conditions []string
}

// Arg adds an argument and returns its placeholder.
func (w *Where) Arg(value any) string {
	w.Args = append(w.Args, value)
	return fmt.Sprintf("$%d", len(w.Args))
}

// Add adds a condition in which each %s is the placeholder of a value.
func (w *Where) Add(condition string, values ...any) {
	places := make([]any, len(values))
	for i, v := range values {
		places[i] = w.Arg(v)
	}
	w.conditions = append(w.conditions, fmt.Sprintf(condition, places...))
}

// String is the conditions as SQL.
func (w *Where) String() string {
	if len(w.conditions) == 0 {
		return "true"
	}
	return strings.Join(w.conditions, " AND ")
}
