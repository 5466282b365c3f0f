package adapters

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/oncebox/oncebox/messaging"
)

// Calls counts the calls of a broker's methods that are under way, so that Close can refuse new ones and wait for these. The zero value is ready.
type Calls struct {
	mu     sync.Mutex
	closed bool
	under  sync.WaitGroup
}

// Enter counts a call, until leave. After [Calls.Close] it returns [messaging.ErrBrokerDown].
func (c *Calls) Enter(call string) (leave func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, fmt.Errorf("%w: %s after Close", messaging.ErrBrokerDown, call)
	}
	c.under.Add(1)
	return c.under.Done, nil
}

// Begin is Enter for a call that may take no longer than limit, and ends when open is done.
func (c *Calls) Begin(ctx, open context.Context, call string, limit time.Duration) (_ context.Context, leave func(), err error) {
	done, err := c.Enter(call)
	if err != nil {
		return ctx, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	stop := context.AfterFunc(open, cancel)
	return ctx, func() {
		stop()
		cancel()
		done()
	}, nil
}

// Close makes Enter refuse further calls. It returns false if it was called before.
func (c *Calls) Close() (first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first, c.closed = !c.closed, true
	return first
}

// Wait reports whether the calls under way ended within the limit.
func (c *Calls) Wait(limit time.Duration) bool { return WaitFor(&c.under, limit) }

// WaitFor reports whether the group was done within the limit. The waiting goroutine stays until it is.
func WaitFor(group *sync.WaitGroup, limit time.Duration) bool {
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
