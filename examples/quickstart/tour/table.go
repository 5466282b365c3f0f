package tour

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
)

// printTable shows rows below their names, with aligned columns.
func (s *story) printTable(names []string, rows [][]string) error {
	w := tabwriter.NewWriter(s.out, 0, 0, 3, ' ', 0)
	for _, row := range append([][]string{names}, rows...) {
		fmt.Fprintln(w, "   "+strings.Join(row, "\t"))
	}
	return w.Flush()
}

// printQuery shows what a query finds.
func (s *story) printQuery(ctx context.Context, title, query string) error {
	found, err := s.db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer found.Close()
	names, err := found.Columns()
	if err != nil {
		return err
	}
	var rows [][]string
	for found.Next() {
		values, cells := make([]any, len(names)), make([]string, len(names))
		for i := range values {
			values[i] = new(any)
		}
		if err := found.Scan(values...); err != nil {
			return err
		}
		for i, v := range values {
			cells[i] = strings.TrimSpace(fmt.Sprint(*v.(*any))) //nolint:forcetypeassert // made so above
		}
		rows = append(rows, cells)
	}
	if err := found.Err(); err != nil {
		return err
	}
	s.sayf("\n   -- %s", title)
	return s.printTable(names, rows)
}
