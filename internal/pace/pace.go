package pace

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"
)

// Pace limits one caller to a rate. It is not safe for concurrent use.
type Pace struct {
	limit *rate.Limiter
	size  int
}

// New returns a pace of perSecond things per second (0: no limit), in batches of at most size.
func New(perSecond float64, size int) *Pace {
	if perSecond <= 0 {
		return &Pace{limit: rate.NewLimiter(rate.Inf, size), size: size}
	}
	size = max(1, int(min(float64(size), perSecond)))
	p := &Pace{limit: rate.NewLimiter(rate.Limit(perSecond), size), size: size}
	p.limit.AllowN(time.Now(), size) // uses up the initial allowance, which would let a whole batch pass without a wait
	return p
}

// Batch returns how many things to do at once: at most size, and at most what one second allows.
func (p *Pace) Batch() int { return p.size }

// Wait waits for the time that done things are allowed to take; done is at most a batch. It returns an error at once if
// the deadline of ctx is earlier.
func (p *Pace) Wait(ctx context.Context, done int64) error {
	if err := p.limit.WaitN(ctx, int(done)); err != nil {
		return fmt.Errorf("wait, for the rate that was asked for: %w", err)
	}
	return nil
}
