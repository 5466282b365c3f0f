package outbox

import "context"

// RepairAll runs every repair of a lane on keys and rows, whether or not they seem wrong.
func (s *Store) RepairAll(ctx context.Context, lane int16, keys []string, seqs []int64) (found Reconciled, err error) {
	r := reconciler{Store: s}
	if err := r.repair(ctx, lane, keys, 1, keyRepairs(&found)); err != nil {
		return found, err
	}
	err = r.repair(ctx, lane, seqs, 1, []repair{{wakeUnordered, &found.Stuck}, {calmRows, &found.Early}})
	return found, err
}

// ExplainLooks returns the plans of what a pass over a lane in order runs.
func (s *Store) ExplainLooks(ctx context.Context, lane int16) (map[string]string, error) {
	out := map[string]string{}
	for name, look := range map[string]struct {
		statement string
		args      []any
	}{
		"stray": {strayLane, []any{63, 32767}}, "lanes": {lanesWithHeld, nil},
		"keys": {lookAtKeys, []any{lane, ""}}, "unordered": {lookAtUnordered, []any{lane, 0}}, "due": {lookAtDue, []any{lane}},
	} {
		plan, err := s.explain(ctx, look.statement, look.args)
		if err != nil {
			return nil, err
		}
		out[name] = plan
	}
	return out, nil
}
