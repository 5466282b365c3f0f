package once

import (
	"context"
	"sync"
)

// Key identifies what is read. Of is the store.
type Key struct {
	Of   any
	What string
}

// answers are the answers of one page.
type answers struct {
	ctx context.Context //nolint:containedctx // a reader whose own context ends must not end the reading of the others
	mu  sync.Mutex
	of  map[Key]*answer
}

// answer is one of them, as soon as done is closed.
type answer struct {
	done  chan struct{}
	value any
	err   error
}

type inContext struct{}

// With returns a context whose readers share their answers.
func With(ctx context.Context) context.Context {
	all := &answers{of: map[Key]*answer{}}
	all.ctx = context.WithValue(ctx, inContext{}, all) // what a reading reads in its turn is shared as well
	return all.ctx
}

// Do returns what read returns: of this call, or of an earlier call with the key. read gets the context of [With], so it goes on for the others if the
// caller's own context ends.
func Do[T any](ctx context.Context, key Key, read func(context.Context) (T, error)) (value T, err error) {
	all, shared := ctx.Value(inContext{}).(*answers)
	if !shared {
		return read(ctx)
	}
	all.mu.Lock()
	is, known := all.of[key]
	if !known {
		is = &answer{done: make(chan struct{})}
		all.of[key] = is
	}
	all.mu.Unlock()
	if !known {
		go func() {
			defer close(is.done)
			is.value, is.err = read(all.ctx)
		}()
	}
	select {
	case <-is.done:
		value, _ = is.value.(T)
		return value, is.err
	case <-ctx.Done():
		return value, ctx.Err()
	}
}
