package parked

import (
	"context"
	"strings"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// Explain returns the plan of a page of [Messages.List].
func (m *Messages) Explain(ctx context.Context, filter Filter, after *Message, limit int) (string, error) {
	statement, args := page(filter, after, limit)
	rows := m.h.AdHoc().Query(ctx, m.h.DB(ctx), "EXPLAIN "+statement, args...)
	plan, err := pgsql.Collect(rows, func(scan pgsql.Scan, line *string) error { return scan(line) })
	return strings.Join(plan, "\n"), err
}
