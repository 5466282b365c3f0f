package state

import (
	"context"
	"strings"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// ExplainLocate returns the plans of [Reader.Locate].
func (r *Reader) ExplainLocate(ctx context.Context, keys ...string) (string, error) {
	var plan []string
	for _, statement := range []string{locateMessages, locateSteps} {
		rows := r.h.AdHoc().Query(ctx, r.h.DB(ctx), "EXPLAIN "+statement, keys)
		lines, err := pgsql.Collect(rows, func(scan pgsql.Scan, line *string) error { return scan(line) })
		if err != nil {
			return "", err
		}
		plan = append(plan, lines...)
	}
	return strings.Join(plan, "\n"), nil
}
