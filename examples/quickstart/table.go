package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
)

// print shows the result of a query as a table.
func (s *story) print(ctx context.Context, query string) error {
	rows, err := s.db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return err
	}
	fmt.Println("\n  ", query)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "     "+strings.Join(names, "\t"))
	for rows.Next() {
		values, cells := make([]any, len(names)), make([]string, len(names))
		for i := range values {
			values[i] = new(any)
		}
		if err := rows.Scan(values...); err != nil {
			return err
		}
		for i, v := range values {
			cells[i] = strings.TrimSpace(fmt.Sprint(*v.(*any))) //nolint:forcetypeassert // made so above
		}
		fmt.Fprintln(w, "     "+strings.Join(cells, "\t"))
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return w.Flush()
}
