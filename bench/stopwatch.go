package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

// stopwatch passes messages on. It takes the time from the first call until so many were confirmed, and calls done when
// all were.
type stopwatch struct {
	to           messaging.Publisher
	clocked, all int
	done         func()

	mu         sync.Mutex
	begin, end time.Time
	confirmed  int
}

func newStopwatch(to messaging.Publisher, clocked, all int, done func()) *stopwatch {
	return &stopwatch{to: to, clocked: clocked, all: all, done: done}
}

// Publish passes msgs on.
func (s *stopwatch) Publish(ctx context.Context, msgs []event.Envelope) error {
	s.mu.Lock()
	if s.begin.IsZero() {
		s.begin = time.Now()
	}
	s.mu.Unlock()
	err := s.to.Publish(ctx, msgs)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.confirmed += confirmed(msgs, err)
	if s.end.IsZero() && s.confirmed >= s.clocked {
		s.end = time.Now()
	}
	if s.confirmed >= s.all {
		s.done()
	}
	return err
}

// time fails if not all were confirmed.
func (s *stopwatch) time() (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.confirmed < s.all {
		return 0, fmt.Errorf("%w: %d of %d events were not published", errWrong, s.all-s.confirmed, s.all)
	}
	return s.end.Sub(s.begin), nil
}
