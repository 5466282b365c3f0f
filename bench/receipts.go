package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

// receipts passes messages on and notes when the messages in single are confirmed. All other messages are the backlog.
type receipts struct {
	to messaging.Publisher

	mu     sync.Mutex
	left   int           // of the backlog
	begun  chan struct{} // closed when some of the backlog is confirmed
	begin  int           // left when that is
	single map[string]*receipt
}

// receipt is of one message, by its aggregate.
type receipt struct {
	committed, confirmed time.Time
	done                 chan struct{}
}

func newReceipts(to messaging.Publisher, backlog int) *receipts {
	return &receipts{to: to, left: backlog, begin: backlog - backlog/50, begun: make(chan struct{}), single: map[string]*receipt{}}
}

// Publish passes msgs on.
func (r *receipts) Publish(ctx context.Context, msgs []event.Envelope) error {
	err := r.to.Publish(ctx, msgs)
	at := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.left
	for i := range msgs {
		switch s := r.single[msgs[i].AggregateID]; {
		case err != nil: // what was confirmed nevertheless counts when the tally is taken
		case s == nil:
			r.left--
		case s.confirmed.IsZero():
			s.confirmed = at
			close(s.done)
		}
	}
	if before > r.begin && r.left <= r.begin {
		close(r.begun)
	}
	return err
}

// underWay waits until a fiftieth of the backlog is out.
func (r *receipts) underWay(ctx context.Context) error {
	select {
	case <-r.begun:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the relay did not begin: %w", context.Cause(ctx))
	}
}

// backlog returns how much of it is left.
func (r *receipts) backlog() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.left
}

// expect is called before the message is committed, commit afterwards.
func (r *receipts) expect(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.single[id] = &receipt{done: make(chan struct{})}
}

func (r *receipts) commit(id string) {
	at := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.single[id].committed = at
}

// wait returns the time from the commit to the receipt in milliseconds.
func (r *receipts) wait(ctx context.Context, id string) (float64, error) {
	r.mu.Lock()
	s := r.single[id]
	r.mu.Unlock()
	select {
	case <-s.done:
	case <-ctx.Done():
		return 0, fmt.Errorf("%w: no receipt for %s: %w", errWrong, id, context.Cause(ctx))
	}
	// It can be confirmed before the committing call has returned.
	return max(0, s.confirmed.Sub(s.committed).Seconds()*1000), nil
}
