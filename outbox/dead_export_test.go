package outbox

import (
	"context"
	"strings"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
)

// ExplainDead returns the plan of a page of [Store.Dead].
func (s *Store) ExplainDead(ctx context.Context, filter operator.DeadFilter, after *DeadLetter, limit int) (string, error) {
	statement, args := s.dead.Page(filter, after, limit)
	return s.explain(ctx, statement, args)
}

// ExplainDeadErrors returns the plan of [Store.DeadErrors].
func (s *Store) ExplainDeadErrors(ctx context.Context, limit int) (string, error) {
	return s.explain(ctx, listDeadErrors, []any{limit})
}

// ExplainPick returns the plan of the choice of a batch.
func (s *Store) ExplainPick(ctx context.Context, filter operator.DeadFilter, after outboxdb.RowID, n int) (string, error) {
	w := s.dead.SQL.Where(filter)
	w.Add(s.dead.SQL.Beyond, after.Lane, after.Seq)
	statement, args := s.dead.Pick(w, n)
	return s.explain(ctx, statement, args)
}

// ExplainAudit returns the plan of the audit of one event.
func (s *Store) ExplainAudit(ctx context.Context, id string) (string, error) {
	statement, args, err := s.audit.Page(operator.AuditFilter{EventID: id}, nil, 10)
	if err != nil {
		return "", err
	}
	return s.explain(ctx, statement, args)
}

// ExplainMove returns the plans of what one batch of a replay writes.
func (s *Store) ExplainMove(ctx context.Context, lanes []int16, seqs []int64, keys []string) (move, wake string, err error) {
	if move, err = s.explain(ctx, replayDead, []any{"ann", string(operator.Replay), "", lanes, seqs}); err != nil {
		return "", "", err
	}
	wake, err = s.explain(ctx, wakeHeads, []any{lanes, keys})
	return move, wake, err
}

func (s *Store) explain(ctx context.Context, statement string, args []any) (string, error) {
	plan, err := pgsql.Collect(s.adHoc().Query(ctx, s.db, "EXPLAIN "+statement, args...), func(scan pgsql.Scan, line *string) error { return scan(line) })
	return strings.Join(plan, "\n"), err
}
