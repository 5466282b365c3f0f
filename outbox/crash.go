package outbox

import "context"

// A projector that dies leaves no note about the row that killed it. So its successor sends each row that may have been
// on its way alone, and counts the attempt before it begins: a count that is found again was the last thing that some
// projector did.
const (
	countCrash = laneFence + `
UPDATE {schema}.outbox o SET crashes = least(o.crashes + 1, 32000) FROM lane WHERE o.lane = lane.lane AND o.seq = $4`
	countHeldCrash = laneFence + `
UPDATE {schema}.outbox_held o SET crashes = least(o.crashes + 1, 32000) FROM lane WHERE o.lane = lane.lane AND o.seq = $4`
	acquit = laneFence + `
UPDATE {schema}.outbox o SET crashes = 0 FROM lane WHERE o.lane = lane.lane AND o.seq = $4 AND o.crashes > 0`
	acquitHeld = laneFence + `
UPDATE {schema}.outbox_held o SET crashes = 0 FROM lane WHERE o.lane = lane.lane AND o.seq = $4 AND o.crashes > 0`

	laneFence = `
WITH lane AS MATERIALIZED (
	SELECT lane FROM {schema}.outbox_lane WHERE lane = $2 AND owner = $1 AND epoch = $3 FOR NO KEY UPDATE)`
)

// Suspect counts that a row is about to be sent alone; held says which table it is in. It returns [ErrFenced] if the lane
// was lost or the row is gone.
func (s *Store) Suspect(ctx context.Context, lease Lease, seq int64, held bool) error {
	statement := countCrash
	if held {
		statement = countHeldCrash
	}
	n, err := s.sql.Exec(ctx, s.db, statement, lease.Owner, lease.Lane, lease.Epoch, seq)
	return fencedUnless(n, wrap("suspect a row", err))
}

// Acquit takes the counts of a row back: the projector lived through the attempt, however it ended.
func (s *Store) Acquit(ctx context.Context, lease Lease, seq int64, held bool) error {
	statement := acquit
	if held {
		statement = acquitHeld
	}
	_, err := s.sql.Exec(ctx, s.db, statement, lease.Owner, lease.Lane, lease.Epoch, seq)
	return wrap("acquit a row", err)
}
