package lease

import (
	"context"
	"time"

	"github.com/oncebox/oncebox/internal/backoff"
)

// Grace is how long a renewal may still take when the work has ended. A renewal that hangs, or waits for a connection, must not delay the outcome
// of the work; but cancelling a renewal costs its connection.
const Grace = 100 * time.Millisecond

// Repeat calls renew a third of ttl after each renewal that succeeded, the one at since being the first, and a tenth of ttl after each that failed,
// until ctx ends. Each call gets a third of ttl. Use it for several leases that are renewed together, and [Lease.Hold] for one lease with one piece
// of work under it.
func Repeat(ctx context.Context, since time.Time, ttl time.Duration, renew func(ctx context.Context) error, failed func(err error)) {
	pause := time.Until(since.Add(ttl / 3))
	for backoff.Wait(ctx, pause) == nil {
		began := time.Now()
		err := once(ctx, ttl, renew)
		switch {
		case err == nil:
			pause = time.Until(began.Add(ttl / 3))
		case ctx.Err() != nil: // it was given up
		default:
			pause = ttl / 10
			failed(err)
		}
	}
}

// once calls renew with a context that does not end with ctx: a statement that is given up closes its connection, and the work may
// just have ended.
func once(ctx context.Context, ttl time.Duration, renew func(ctx context.Context) error) error {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), ttl/3)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(Grace, cancel) })()
	return renew(bounded)
}
