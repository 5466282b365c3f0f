package outbox

import (
	"context"
	"time"
)

// Rehearse sends the statements with which lanes are claimed and kept, for no lane. It errs if this build does not fit the tables, or this role lacks a
// right. A projector that is counted as alive has a share of the lanes, and so has to be able to hold them.
func (s Relay) Rehearse(ctx context.Context, owner string, group int16, ttl time.Duration) error {
	if _, err := s.Claim(ctx, owner, group, 0, ttl); err != nil {
		return err
	}
	_, err := s.Renew(ctx, nil, ttl)
	return err
}
