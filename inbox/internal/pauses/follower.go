package pauses

import (
	"context"
	"sync"
	"time"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/backoff"
)

// interval is how often a process reads which consumers are paused.
const interval = time.Second

// Follower calls a function with the pauses as they are. It is safe for concurrent use.
type Follower struct {
	h     *store.Handle
	apply func([]Pause)

	mu     sync.Mutex
	looked time.Time // when the last look was answered
}

// NewFollower returns a follower that passes the pauses to apply, one call at a time.
func NewFollower(h *store.Handle, apply func([]Pause)) *Follower {
	return &Follower{h: h, apply: apply}
}

// Await reads the pauses, and tries again until the database has answered or ctx is done. A process calls it before it handles its first
// message: a pause outlasts a restart.
func (f *Follower) Await(ctx context.Context) {
	for failures := 1; ctx.Err() == nil; failures++ {
		err := f.look(ctx)
		if err == nil {
			return
		}
		pause := f.h.Pauses().Pause(failures)
		if ctx.Err() == nil {
			f.h.Log.WarnContext(ctx, "oncebox: no message is handled before it is known which consumers are paused; trying again", "pause", pause, "error", err)
		}
		_ = backoff.Wait(ctx, pause) // an error is the end of ctx
	}
}

// Follow reads the pauses once a second, until ctx is done. While the database does not answer, pauses stay as they are.
func (f *Follower) Follow(ctx context.Context) {
	failing := false
	for backoff.Wait(ctx, interval) == nil {
		err := f.look(ctx)
		// Only the first failure in a row is logged: other parts report a database that is away, too.
		if err != nil && !failing && ctx.Err() == nil {
			f.h.Log.WarnContext(ctx, "oncebox: it could not be read which consumers are paused; until the next answer nothing changes", "error", err)
		}
		failing = err != nil
	}
}

// look reads the pauses and applies them, unless that was done less than half an interval ago: receiving and the work on parked messages both
// follow the pauses, and one look serves both. Looks come one after the other, so that an old answer cannot replace a newer one.
func (f *Follower) look(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.looked.IsZero() && time.Since(f.looked) < interval/2 {
		return nil
	}
	list, err := Read(ctx, f.h)
	if err != nil {
		return err
	}
	f.looked = time.Now()
	f.apply(list)
	return nil
}
