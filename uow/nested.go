package uow

import (
	"context"
	"fmt"
	"strconv"

	"github.com/oncebox/oncebox/event"
)

// nested runs fn behind a savepoint.
//
// When fn fails, its SQL is undone, and so must be what it did to aggregates. Those that it tracked itself, and those
// that an outer level had tracked and that recorded events meanwhile, hold state and events of work that is undone:
// the outer flush would publish them as ghosts. They are stale from now on, and a unit that would emit a stale
// aggregate fails.
func (u *Unit) nested(ctx context.Context, fn func(context.Context, *Unit) error) (err error) {
	r := u.root
	inner := &Unit{root: r, depth: u.depth + 1}
	name := "oncebox_" + strconv.Itoa(inner.depth)
	before := u.recorded()

	if _, err := r.tx.Tx.ExecContext(ctx, "SAVEPOINT "+name); err != nil {
		return fmt.Errorf("uow: savepoint: %w", err)
	}
	undo := func() error {
		inner.markStale(before)
		if r.ended.Load() {
			return nil
		}
		// Not the caller's to cancel: without it the outer unit could not go on.
		_, err := r.tx.Tx.ExecContext(context.WithoutCancel(ctx), "ROLLBACK TO SAVEPOINT "+name)
		return err
	}
	panicked := true
	defer func() {
		if panicked {
			_ = undo() // the panic goes on and ends the unit, or is recovered and the next statement reports
		}
	}()
	err = fn(inner.context(ctx), inner)
	panicked = false
	if err != nil {
		r.note(err)
		if undoErr := undo(); undoErr != nil {
			return fmt.Errorf("uow: roll back to savepoint after %w: %w", err, undoErr)
		}
		return err
	}
	if _, err := r.tx.Tx.ExecContext(ctx, "RELEASE SAVEPOINT "+name); err != nil {
		if undoErr := undo(); undoErr != nil {
			return fmt.Errorf("uow: roll back to savepoint after %w: %w", err, undoErr)
		}
		return fmt.Errorf("uow: release savepoint: %w", err)
	}
	u.merge(inner)
	return nil
}

func (u *Unit) merge(inner *Unit) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, e := range inner.entries {
		if e.aggregate != nil {
			u.track(e.aggregate)
			continue
		}
		u.entries = append(u.entries, e)
	}
	u.hooks = append(u.hooks, inner.hooks...)
}

// recorded counts the events of each aggregate that this level tracks.
func (u *Unit) recorded() map[event.Aggregate]int {
	u.mu.Lock()
	defer u.mu.Unlock()
	counts := make(map[event.Aggregate]int, len(u.entries))
	for _, e := range u.entries {
		if e.aggregate != nil {
			counts[e.aggregate] = len(e.aggregate.RecordedEvents())
		}
	}
	return counts
}

func (u *Unit) markStale(before map[event.Aggregate]int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, e := range u.entries {
		if e.aggregate != nil {
			u.root.stale[e.aggregate] = struct{}{}
		}
	}
	for a, n := range before {
		if len(a.RecordedEvents()) != n {
			u.root.stale[a] = struct{}{}
		}
	}
}
