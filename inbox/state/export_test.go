package state

import (
	"context"
	"strings"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// ExplainLocate returns the plans of [Reader.Locate].
func (r *Reader) ExplainLocate(ctx context.Context, keys ...string) (string, error) {
	messages, err := r.explain(ctx, locateMessages, keys)
	if err != nil {
		return "", err
	}
	steps, err := r.explain(ctx, locateSteps, keys)
	return messages + steps, err
}

// ExplainStats returns the plans of [Reader.Stats].
func (r *Reader) ExplainStats(ctx context.Context, consumer string) (string, error) {
	list, err := r.explain(ctx, store.Troubled)
	if err != nil {
		return "", err
	}
	one, err := r.explain(ctx, store.Statistics, consumer, 10_000)
	return list + one, err
}

func (r *Reader) explain(ctx context.Context, statement string, args ...any) (string, error) {
	rows := r.h.AdHoc().Query(ctx, r.h.DB(ctx), "EXPLAIN "+statement, args...)
	plan, err := pgsql.Collect(rows, func(scan pgsql.Scan, line *string) error { return scan(line) })
	return strings.Join(plan, "\n"), err
}
