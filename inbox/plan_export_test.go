package inbox

import (
	"context"
	"strings"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// ExplainNextDue returns the plan of the question when the next key becomes due.
func (i *Inbox) ExplainNextDue(ctx context.Context, consumers []string) (string, error) {
	return i.explain(ctx, store.NextDue, []any{consumers})
}

// ExplainClaim returns the plan of the statement that takes keys of these topics.
func (i *Inbox) ExplainClaim(ctx context.Context, consumer string, topics []string) (string, error) {
	return i.explain(ctx, "(ANALYZE, COSTS OFF, TIMING OFF) "+store.ClaimKeys, []any{[]string{consumer}, 4, i.store.Owner, i.cfg.ParkedLease, topics})
}

func (i *Inbox) explain(ctx context.Context, statement string, args []any) (string, error) {
	rows := i.store.AdHoc().Query(ctx, i.store.DB(ctx), "EXPLAIN "+statement, args...)
	plan, err := pgsql.Collect(rows, func(scan pgsql.Scan, line *string) error { return scan(line) })
	return strings.Join(plan, "\n"), err
}
