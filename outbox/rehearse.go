package outbox

import (
	"context"
	"errors"
	"time"
)

// Rehearse sends the statements with which lanes are claimed and their rows read, taken and recorded, for no lane. It errs if this build does not fit the
// tables, or this role lacks a right. A projector that is counted as alive has a share of the lanes, and so has to be able to serve them.
func (s Relay) Rehearse(ctx context.Context, owner string, group int16, ttl time.Duration) error {
	_, claiming := s.Claim(ctx, owner, group, 0, ttl)
	if claiming != nil {
		return claiming // nothing else would go well if the database is away
	}
	_, renewing := s.Renew(ctx, nil, ttl)
	_, _, locating := s.Positions(ctx, nil)
	_, loading := s.Blocks(ctx, nil)
	_, fetching := s.Fetch(ctx, nil, 0)
	_, _, taking := s.Take(ctx, nil)
	_, recording := s.Record(ctx, nil)
	_, settling := s.Settle(ctx, nil, nil)
	return errors.Join(renewing, locating, loading, fetching, taking, recording, settling)
}
