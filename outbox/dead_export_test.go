package outbox

import (
	"context"
	"fmt"
	"strings"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// ExplainDead returns the plan of a page of [Store.Dead].
func (s *Store) ExplainDead(ctx context.Context, filter DeadFilter, after *DeadLetter, limit int) (string, error) {
	statement, args := deadPage(filter, after, limit)
	return s.explain(ctx, statement, args)
}

// ExplainDeadErrors returns the plan of [Store.DeadErrors].
func (s *Store) ExplainDeadErrors(ctx context.Context, limit int) (string, error) {
	return s.explain(ctx, listDeadErrors, []any{limit})
}

// ExplainPick returns the plan of the choice of a batch.
func (s *Store) ExplainPick(ctx context.Context, filter DeadFilter, after RowID, n int) (string, error) {
	w := filter.where()
	w.Add("(d.lane, d.seq) > (%s::smallint, %s::bigint)", after.Lane, after.Seq)
	bound := w.Arg(n)
	return s.explain(ctx, fmt.Sprintf(pickDead, w, bound), w.Args)
}

// ExplainAudit returns the plan of the audit of one event.
func (s *Store) ExplainAudit(ctx context.Context, id string) (string, error) {
	w := &pgsql.Where{}
	w.Add("a.event_id = %s::uuid", id)
	bound := w.Arg(10)
	return s.explain(ctx, fmt.Sprintf(listAudit, w, bound), w.Args)
}

// ExplainMove returns the plans of what one batch of a replay writes.
func (s *Store) ExplainMove(ctx context.Context, lanes []int16, seqs []int64, keys []string) (move, wake string, err error) {
	if move, err = s.explain(ctx, replayDead, []any{lanes, seqs, "ann", ActionReplay, ""}); err != nil {
		return "", "", err
	}
	wake, err = s.explain(ctx, wakeHeads, []any{lanes, keys})
	return move, wake, err
}

func (s *Store) explain(ctx context.Context, statement string, args []any) (string, error) {
	plan, err := pgsql.Collect(s.adHoc().Query(ctx, s.db, "EXPLAIN "+statement, args...), func(scan pgsql.Scan, line *string) error { return scan(line) })
	return strings.Join(plan, "\n"), err
}
