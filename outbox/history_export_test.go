package outbox

import "context"

// ExplainHistory returns the plan of a page of [Store.EventsByAggregate].
func (s *Store) ExplainHistory(ctx context.Context, tenant, aggregateType, aggregateID string) (string, error) {
	return s.explain(ctx, eventsByAggregate, []any{tenant, aggregateType, aggregateID, 0, 100})
}

// ExplainSent returns the plans of the choice of a replay and of a batch of it.
func (s *Store) ExplainSent(ctx context.Context, filter SentFilter) (string, error) {
	w := filter.where(0)
	return s.explain(ctx, "SELECT s.child::bigint, s.place::text FROM {schema}.outbox_published s WHERE "+w.String()+" ORDER BY s.seq", w.Args)
}

// ExplainRead returns the plan of the reading of a batch.
func (s *Store) ExplainRead(ctx context.Context) (string, error) {
	return s.explain(ctx, readSent, []any{[]int64{1, 2, 3}, []string{"(0,1)", "(0,2)", "(0,3)"}})
}
