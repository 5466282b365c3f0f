package inbox

import (
	"context"
	"strings"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
)

// ExplainDead returns the plan of a page of [Inbox.Dead].
func (i *Inbox) ExplainDead(ctx context.Context, filter operator.DeadFilter, after *DeadLetter, limit int) (string, error) {
	statement, args := i.dead.Page(filter, after, limit)
	return i.explain(ctx, statement, args)
}

// ExplainDeadErrors returns the plan of [Inbox.DeadErrors].
func (i *Inbox) ExplainDeadErrors(ctx context.Context, limit int) (string, error) {
	return i.explain(ctx, store.ListDeadErrors, []any{limit})
}

// ExplainPick returns the plan of the choice of a batch.
func (i *Inbox) ExplainPick(ctx context.Context, lock, seq int64) (string, error) {
	w := &pgsql.Where{}
	w.Add(i.dead.SQL.Beyond, lock, seq)
	statement, args := i.dead.Pick(w, 100)
	return i.explain(ctx, statement, args)
}

// ExplainMove returns the plan of what one batch of a replay writes.
func (i *Inbox) ExplainMove(ctx context.Context, keys []operator.MessageRef, locks []int64) (string, error) {
	b := deadMessages{locks: locks}
	for _, k := range keys {
		b.keys, b.consumers = append(b.keys, k.MessageKey), append(b.consumers, k.Consumer)
		b.tenants, b.sources = append(b.tenants, k.TenantID), append(b.sources, k.Source)
	}
	return i.explain(ctx, store.ReplayDead, append([]any{"ann", string(operator.Replay), ""}, b.Refs()...))
}

// ExplainNextDue returns the plan of the question when the next key becomes due.
func (i *Inbox) ExplainNextDue(ctx context.Context, consumers []string) (string, error) {
	return i.explain(ctx, store.NextDue, []any{consumers})
}

// ExplainClaim returns the plan of the statement that takes keys of these topics.
func (i *Inbox) ExplainClaim(ctx context.Context, consumer string, topics []string) (string, error) {
	return i.explain(ctx, "(ANALYZE, COSTS OFF, TIMING OFF) "+store.ClaimKeys, []any{[]string{consumer}, 4, i.store.Owner, i.cfg.ParkedLease, topics})
}

// ExplainStats returns the plans of the statistics.
func (i *Inbox) ExplainStats(ctx context.Context, consumer string) (string, error) {
	list, err := i.explain(ctx, store.Troubled, nil)
	if err != nil {
		return "", err
	}
	one, err := i.explain(ctx, store.Statistics, []any{consumer, 10_000})
	return list + one, err
}

func (i *Inbox) explain(ctx context.Context, statement string, args []any) (string, error) {
	rows := i.store.AdHoc().Query(ctx, i.store.DB(ctx), "EXPLAIN "+statement, args...)
	plan, err := pgsql.Collect(rows, func(scan pgsql.Scan, line *string) error { return scan(line) })
	return strings.Join(plan, "\n"), err
}
