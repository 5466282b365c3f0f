package parked

import (
	"context"
	"strings"

	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
)

// Explain returns the plan of a page of [Messages.List].
func (m *Messages) Explain(ctx context.Context, filter Filter, after *Message, limit int) (string, error) {
	statement, args := page(filter, after, limit)
	return m.explain(ctx, statement, args)
}

// ExplainCount returns the plan of [Messages.Count].
func (m *Messages) ExplainCount(ctx context.Context, filter Filter) (string, error) {
	statement, args := count(filter)
	return m.explain(ctx, statement, args)
}

// ExplainTenants returns the plan of [Messages.Tenants].
func (m *Messages) ExplainTenants(ctx context.Context, filter Filter) (string, error) {
	statement, args := tenants(filter, 10)
	return m.explain(ctx, statement, args)
}

// ExplainRetry returns the plan of a batch of [Messages.RetryAll].
func (m *Messages) ExplainRetry(ctx context.Context, filter Filter) (string, error) {
	statement, args := retry(filter, operator.By{Actor: "ann"}, nil, batch)
	return m.explain(ctx, statement, args)
}

func (m *Messages) explain(ctx context.Context, statement string, args []any) (string, error) {
	rows := m.h.AdHoc().Query(ctx, m.h.DB(ctx), "EXPLAIN "+statement, args...)
	plan, err := pgsql.Collect(rows, func(scan pgsql.Scan, line *string) error { return scan(line) })
	return strings.Join(plan, "\n"), err
}
