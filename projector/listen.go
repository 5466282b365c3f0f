package projector

import (
	"context"
	"errors"
	"time"

	"github.com/oncebox/oncebox/internal/outboxdb"
)

// relistenPause is the pause between the loss of a listening connection and the first attempt to open another one. It
// also bounds the attempts on a server that accepts connections and drops them at once.
const relistenPause = 100 * time.Millisecond

// listen wakes the workers when another process has committed events, and the coordinator when another process has
// handed lanes back. It returns when the connection is lost. Nothing depends on it: it only saves the time to the
// next poll or beat.
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
		// The connection had worked, so this does not count as a failed attempt: the pauses begin at the shortest
		// again.
		r.p.log.WarnContext(ctx, "oncebox: the connection that listens for commits was lost, opening another", "error", err)
		return nil
	default:
		return err
	}
}
