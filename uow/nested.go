package uow

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgerr"
)

// nested runs fn behind a savepoint.
//
// When fn fails, its SQL is undone, but its aggregates still hold the state and the events of the undone work, and the outer flush would publish
// these events. This concerns the aggregates that fn tracked itself, and aggregates of outer levels that recorded events meanwhile. All of them
// become stale, and a unit that would emit a stale aggregate fails.
func (r *root) nested(ctx context.Context, fn func(context.Context, *Unit) error, o *options) error {
	s, err := r.enter(ctx, o)
	if err != nil {
		return err
	}
	s.fn = fn
	returned := false
	defer func() {
		// A panic, or runtime.Goexit, which t.FailNow calls. It goes on and ends the unit, unless somebody recovers it.
		if !returned {
			_ = r.undo(ctx, s)
		}
	}()
	u := s.level.in(ctx)
	if err = fn(u.ctx, u); err == nil {
		err = r.rules(ctx, s.level)
	}
	returned = true
	return r.leave(ctx, s, err)
}

// enter begins a level.
func (r *root) enter(ctx context.Context, o *options) (*savepoint, error) {
	s := r.push()
	s.level.around = o.nestedChecks && s.level.parent.around
	if err := r.exec(ctx, "SAVEPOINT "+s.name); err != nil {
		return nil, errors.Join(fmt.Errorf("uow: savepoint: %w", err), r.pop(s, false))
	}
	return s, nil
}

// leave ends a level whose work ended with err.
func (r *root) leave(ctx context.Context, s *savepoint, err error) error {
	if err == nil {
		if err = r.exec(ctx, "RELEASE SAVEPOINT "+s.name); err == nil {
			r.recovered(s)
			return r.pop(s, true)
		}
		err = fmt.Errorf("uow: release savepoint: %w", r.swallowed(err))
	}
	r.note(s, err)
	if undoErr := r.undo(ctx, s); undoErr != nil {
		return fmt.Errorf("%w: %w", err, undoErr)
	}
	return err
}

// savepoint is a level with the facts that undo needs when it fails.
type savepoint struct {
	name  string
	level *level
	fn    func(context.Context, *Unit) error // nil: Manager.Begin
	// before counts the events that the aggregates of all outer levels had when it began.
	before map[event.Aggregate]int
}

func (r *root) push() *savepoint {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &savepoint{
		level:  &level{root: r, parent: r.active, depth: r.active.depth + 1},
		before: map[event.Aggregate]int{},
	}
	s.name = "oncebox_" + strconv.Itoa(s.level.depth)
	for u := r.active; u != nil; u = u.parent {
		for _, e := range u.entries {
			if e.aggregate != nil {
				s.before[e.aggregate] = len(e.aggregate.RecordedEvents())
			}
		}
	}
	r.active = s.level
	return s
}

// pop ends the level. keep: its entries, hooks and statements move to the level around it. Otherwise they are dropped, and its aggregates become
// stale.
func (r *root) pop(s *savepoint, keep bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	inner := s.level
	inner.ended = true
	if r.doomIfOpen(inner); r.active != inner {
		return r.doomed
	}
	outer := inner.parent
	r.active = outer
	if keep {
		outer.entries = append(outer.entries, inner.entries...)
		outer.hooks = append(outer.hooks, inner.hooks...)
		outer.last = append(outer.last, inner.last...)
		outer.proofs = append(outer.proofs, inner.proofs...)
		return nil
	}
	r.stale.add(inner.entries)
	for a, n := range s.before {
		if len(a.RecordedEvents()) != n {
			r.stale[a] = struct{}{}
		}
	}
	return nil
}

// undo rolls back to the savepoint. If that fails, the transaction must not be committed: it would contain the SQL of the level without its events.
func (r *root) undo(ctx context.Context, s *savepoint) error {
	err := r.pop(s, false)
	if err == nil && !r.closed {
		// The caller cannot cancel this: the outer unit needs it to go on.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.manager.cfg.CommitTimeout)
		defer cancel()
		// RELEASE as well, or each failure would leave one more subtransaction open.
		err = r.exec(ctx, "ROLLBACK TO SAVEPOINT "+s.name+"; RELEASE SAVEPOINT "+s.name)
	}
	if err != nil {
		err = fmt.Errorf("uow: roll back to savepoint: %w", err)
		r.doom(err)
	}
	return err
}

func (r *root) exec(ctx context.Context, statement string) error {
	if err := r.ended(); err != nil {
		return err
	}
	_, err := r.tx.Tx.ExecContext(ctx, statement)
	if !r.exact && pgerr.Code(err) == pgerr.NoSavepoint {
		return &pgerr.EndedError{How: endedUnseen, Err: err}
	}
	return err
}
