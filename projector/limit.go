package projector

import (
	"context"
	"time"
)

// limit bounds statements to the length of a lease. A server that vanishes together with its machine closes no
// connection: without a limit, a statement would wait about a quarter of an hour for its answer, and other projectors
// own the lanes by then.
type limit time.Duration

// bounded is for work that may be given up when the program is stopped.
func (l limit) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, time.Duration(l))
}

// begun is bounded for work that must be finished even if the program is stopped. A statement that is cancelled may
// be carried out all the same, after the lanes were handed back. A claim that comes through so late would leave a
// lane with a projector that is gone.
func (l limit) begun(ctx context.Context) (context.Context, context.CancelFunc) {
	return l.bounded(context.WithoutCancel(ctx))
}
