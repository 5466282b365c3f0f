package projector

import (
	"context"
	"errors"
	"time"

	"github.com/oncebox/oncebox/internal/outboxdb"
)

// relistenPause is between the loss of a listening connection and the first attempt to have another. It is also what a
// server costs us that takes connections and drops them again.
const relistenPause = 100 * time.Millisecond

// listen wakes the workers when another process has committed, and the coordinator when one has handed lanes back, until the
// connection is lost. It saves the time to the next poll or beat and is needed for nothing else.
func (r *relay) listen(ctx context.Context) error {
	listened := false
	err := r.store.Handle().Listen(ctx, func(lanes outboxdb.LaneSet) {
		listened = true
		r.hears.Store(true)
		r.hear(lanes)
	}, r.hurry)
	r.hears.Store(false)
	switch {
	case errors.Is(err, outboxdb.ErrCannotListen):
		<-ctx.Done()
		return nil
	case err != nil && listened:
		// A connection that was good is no failed attempt: the pauses begin at the shortest again.
		r.p.log.WarnContext(ctx, "oncebox: the connection that listens for commits was lost, opening another", "error", err)
		return nil
	default:
		return err
	}
}
