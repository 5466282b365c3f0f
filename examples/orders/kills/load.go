package kills

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"
)

const (
	loadWorkers = 8
	// againAfter is how many orders of a worker lie between a request and its second coming.
	againAfter = 20
)

// load carries out all plans, as fast as the service answers, but no further than the gate is open.
type load struct {
	client *client
	plans  []plan

	mu     sync.Mutex
	change chan struct{} // closed and replaced when a number below changes
	gate   int           // plans up to it may be begun
	done   int           // plans that were carried out
}

func newLoad(c *client, orders int) *load {
	l := &load{client: c, change: make(chan struct{})}
	for n := range orders {
		l.plans = append(l.plans, makePlan(n))
	}
	return l
}

// run returns when every request of every plan has all its answers.
func (l *load) run(ctx context.Context) error { //nolint:gocognit // the way of one worker
	group, ctx := errgroup.WithContext(ctx)
	for w := range loadWorkers {
		group.Go(func() error {
			var again [][]step
			for n := w; n < len(l.plans); n += loadWorkers {
				if err := l.await(ctx, func() bool { return n < l.gate }); err != nil {
					return err
				}
				sent, err := l.client.carryOut(ctx, l.plans[n])
				if err != nil {
					return err
				}
				l.set(func() { l.done++ })
				if again = append(again, sent); len(again) > againAfter {
					if err := l.resend(ctx, again[0]); err != nil {
						return err
					}
					again = again[1:]
				}
			}
			for _, steps := range again {
				if err := l.resend(ctx, steps); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

func (l *load) resend(ctx context.Context, steps []step) error {
	for _, s := range steps {
		if _, err := l.client.send(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// open lets the load go on up to n plans.
func (l *load) open(n int) { l.set(func() { l.gate = n }) }

// awaitDone waits until n plans were carried out.
func (l *load) awaitDone(ctx context.Context, n int) error {
	return l.await(ctx, func() bool { return l.done >= n })
}

func (l *load) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	close(l.change)
	l.change = make(chan struct{})
}

func (l *load) await(ctx context.Context, holds func() bool) error {
	for {
		l.mu.Lock()
		ok, change := holds(), l.change
		l.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
