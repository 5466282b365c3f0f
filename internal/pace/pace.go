package pace

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"
)

// Pace is a rate of one caller. It is not for concurrent use.
type Pace struct {
	limit *rate.Limiter
	size  int
}

// New returns a pace of so many things per second, 0 for no bound, in batches of at most size.
func New(perSecond float64, size int) *Pace {
	if perSecond <= 0 {
		return &Pace{limit: rate.NewLimiter(rate.Inf, size), size: size}
	}
	size = max(1, int(min(float64(size), perSecond)))
	p := &Pace{limit: rate.NewLimiter(rate.Limit(perSecond), size), size: size}
	p.limit.AllowN(time.Now(), size) // a limiter begins with a whole batch that needs no wait
	return p
}

// Batch is how many things a batch has: what a second allows, at most the size.
func (p *Pace) Batch() int { return p.size }

// Wait waits for as long as done things take, at most a batch of them. It is an error at once if the deadline of ctx comes before.
func (p *Pace) Wait(ctx context.Context, done int64) error {
	if err := p.limit.WaitN(ctx, int(done)); err != nil {
		return fmt.Errorf("wait, for the rate that was asked for: %w", err)
	}
	return nil
}
