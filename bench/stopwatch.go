package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// stopwatch takes the time from the begin of the first publication until so many messages were confirmed, of all
// projectors together.
type stopwatch struct {
	clocked, all int
	done         chan struct{} // closed when all were

	mu         sync.Mutex
	begin, end time.Time
	confirmed  int
}

func newStopwatch(clocked, all int) *stopwatch {
	return &stopwatch{clocked: clocked, all: all, done: make(chan struct{})}
}

func (s *stopwatch) note(p publication) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begin.IsZero() || p.Begin.Before(s.begin) {
		s.begin = p.Begin
	}
	before := s.confirmed
	s.confirmed += p.Confirmed
	if before < s.clocked && s.confirmed >= s.clocked {
		s.end = p.End
	}
	if before < s.all && s.confirmed >= s.all {
		close(s.done)
	}
}

// count returns how many were confirmed so far, with all that were published twice.
func (s *stopwatch) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.confirmed
}

var errEnded = errors.New("a projector has ended")

// wait returns when all were confirmed. It fails when that takes too long, or when one of the projectors ends.
func (s *stopwatch) wait(ctx context.Context, by ...*relayer) (time.Duration, error) {
	bound := time.Minute + time.Duration(s.all)*time.Millisecond
	ctx, cancel := context.WithTimeoutCause(ctx, bound, fmt.Errorf("it was not over after %s", bound))
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	for _, r := range by {
		go func() {
			select {
			case <-r.ended:
				fail(fmt.Errorf("%w: %s", errEnded, r.name))
			case <-ctx.Done():
			}
		}()
	}
	select {
	case <-s.done:
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.end.Sub(s.begin), nil
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		return 0, fmt.Errorf("%w: %d of %d events were not published: %w", errWrong, s.all-s.confirmed, s.all, context.Cause(ctx))
	}
}
