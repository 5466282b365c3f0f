package dead

import (
	"context"
	"strings"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
)

// ExplainList returns the plan of a page of [Letters.List].
func (l *Letters) ExplainList(ctx context.Context, filter operator.DeadFilter, after *Letter, limit int) (string, error) {
	statement, args := l.box.Page(filter, after, limit)
	return l.explain(ctx, statement, args)
}

// ExplainErrors returns the plan of [Letters.Errors].
func (l *Letters) ExplainErrors(ctx context.Context, limit int) (string, error) {
	return l.explain(ctx, store.ListDeadErrors, []any{limit})
}

// ExplainPick returns the plan of the choice of a batch.
func (l *Letters) ExplainPick(ctx context.Context, lock, seq int64) (string, error) {
	w := &pgsql.Where{}
	w.Add(l.box.SQL.Beyond, lock, seq)
	statement, args := l.box.Pick(w, batchSize)
	return l.explain(ctx, statement, args)
}

// ExplainMove returns the plan of the statement by which a replay moves one batch.
func (l *Letters) ExplainMove(ctx context.Context, keys []operator.MessageRef, locks []int64) (string, error) {
	b := messages{locks: locks}
	for _, k := range keys {
		b.keys, b.consumers = append(b.keys, k.MessageKey), append(b.consumers, k.Consumer)
		b.tenants, b.sources = append(b.tenants, k.TenantID), append(b.sources, k.Source)
	}
	return l.explain(ctx, store.ReplayDead, append([]any{"ann", string(operator.Replay), ""}, b.Refs()...))
}

func (l *Letters) explain(ctx context.Context, statement string, args []any) (string, error) {
	rows := l.box.Run.Query(ctx, l.box.DB(ctx), "EXPLAIN "+statement, args...)
	plan, err := pgsql.Collect(rows, func(scan pgsql.Scan, line *string) error { return scan(line) })
	return strings.Join(plan, "\n"), err
}
