package uow

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/unit"
)

// root is shared by a unit and its savepoints: it has the transaction, and what the unit knows of its aggregates.
type root struct {
	manager *Manager
	tx      transaction
	// outer is the unit of another database that was open around this one.
	outer *level
	// token is set at COMMIT if the caller asked for a token. nil: it did not.
	token *Token
	// flushed holds the events that Unit.Token passed to the sinks before the end. nil: none.
	flushed *flushed
	// used: a context was asked for the unit.
	used atomic.Bool

	mu sync.Mutex
	// active is the innermost level. Like savepoints, the level that was opened last ends first.
	active *level
	// whole is the level of the transaction itself.
	whole level
	// doomed is why the transaction must not be committed any more, whatever the function returns.
	doomed error
	stale  *staleSet
	saved  map[event.Aggregate]*write
	hidden []hidden // see Unit.Retryable

	// handled counts the events of an aggregate that the handlers of On have seen.
	handled map[event.Aggregate]int
	// named are the ids of events that the caller chose.
	named map[string]struct{}
}

// staleSet holds the aggregates that lived through a rollback, within this try or an earlier one.
type staleSet map[event.Aggregate]struct{}

// add marks the aggregates of a level. Envelopes that were added by hand hold no state, so they cannot be stale.
func (s *staleSet) add(entries []entry) {
	for _, e := range entries {
		if e.aggregate != nil {
			s.mark(e.aggregate)
		}
	}
}

func (s *staleSet) mark(a event.Aggregate) {
	if *s == nil {
		*s = staleSet{}
	}
	(*s)[a] = struct{}{}
}

func (s *staleSet) has(a event.Aggregate) bool {
	_, is := (*s)[a]
	return is
}

// level is the transaction, or one savepoint in it. Any number of units share it, each with a context of its own.
type level struct {
	root *root
	// parent is the level around this one, nil for the transaction itself.
	parent *level
	depth  int
	// around: the level belongs to a middleware around the code that runs within it, and so do the levels around it, see WithNestedChecks.
	around bool

	// Guarded by root.mu.
	ended   bool
	entries []entry
	hooks   []func(context.Context)
	// last are statements that are sent after all others.
	last pgsql.Batch
	// proofs find rows that were written.
	proofs []unit.Proof
}

// entry is an aggregate whose events are collected at the flush, or one envelope that was added by hand.
type entry struct {
	ctx       context.Context //nolint:containedctx // that of Track or Save: the envelopes are made at the flush
	aggregate event.Aggregate
	envelope  event.Envelope
	// named: the caller chose its id, so other units may have used it before.
	named bool
}

// give adds entries to the innermost level.
func (u *level) give(entries ...entry) error {
	r := u.root
	r.mu.Lock()
	defer r.mu.Unlock()
	if u.ended {
		return errEnded
	}
	if r.flushed != nil && len(entries) > 0 {
		return errFlushed
	}
	if r.active.entries == nil {
		r.active.entries = entries // most units track once
		return nil
	}
	r.active.entries = append(r.active.entries, entries...)
	return nil
}

// find returns the innermost open unit that fits. A goroutine or a hook that outlived its unit finds the one around it,
// or none.
func find(ctx context.Context, fits func(*level) bool) *level {
	found, _ := pgsql.UnitOf(ctx).(*inside)
	return (*level)(found).nearest(fits)
}

// nearest returns the innermost open unit that fits, from this one outwards.
func (u *level) nearest(fits func(*level) bool) *level {
	for u != nil && (!u.open() || !fits(u)) {
		if u.parent != nil {
			u = u.parent
		} else {
			u = u.root.outer
		}
	}
	return u
}

// open reports whether the level can still take entries.
func (u *level) open() bool {
	u.root.mu.Lock()
	defer u.root.mu.Unlock()
	return !u.ended
}

// in returns a Unit of this level whose own context is ctx with the unit in it.
func (u *level) in(ctx context.Context) *Unit {
	in := &struct { // together, because each would be an object of its own
		unit Unit
		ctx  pgsql.UnitContext
	}{ctx: pgsql.UnitContext{Context: ctx, Unit: (*inside)(u)}}
	in.unit = Unit{level: u, ctx: &in.ctx}
	return &in.unit
}

// doom makes sure that the transaction is not committed, even if the function ignores the error.
func (r *root) doom(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.doomed == nil {
		r.doomed = err
	}
}

// doomedBy returns why the transaction must not be committed, nil if it may.
func (r *root) doomedBy() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.doomed
}

// seal ends the unit and returns its entries. An event that was added afterwards would not be emitted, so adding one fails from now on.
func (r *root) seal(u *level) ([]entry, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.doomIfOpen(u)
	u.ended = true
	if r.doomed != nil {
		return nil, fmt.Errorf("uow: the unit cannot be committed: %w", r.doomed)
	}
	return u.entries, nil
}

// doomIfOpen fails the transaction if a level that ends is not the innermost one: a unit within it has not ended, or a unit that ran at the same
// time has undone or released a part of its work.
func (r *root) doomIfOpen(u *level) {
	if r.active == u {
		return
	}
	r.doomed = errParallel
	for inner := r.active; inner != nil; inner = inner.parent {
		if inner == u {
			r.doomed = errUnended
		}
	}
}

// abandon marks all aggregates of the unit as stale.
func (r *root) abandon() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for u := r.active; u != nil; u = u.parent {
		r.stale.add(u.entries)
		u.ended = true
	}
}

// rollback ends the unit without COMMIT. It does nothing to a unit that has been committed or rolled back.
func (r *root) rollback() {
	if !r.tx.closed {
		r.abandon()
		r.tx.rollback()
	}
}
