package uow

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgsql"
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
			_ = s.undo(ctx)
		}
	}()
	u := s.level.in(ctx)
	if err = fn(u.ctx, u); err == nil {
		err = s.level.rules(ctx)
	}
	returned = true
	return s.leave(ctx, err)
}

// enter begins a level.
func (r *root) enter(ctx context.Context, o *options) (*savepoint, error) {
	s := r.push()
	s.level.around = o.nestedChecks && s.level.parent.around
	if err := r.tx.exec(ctx, "SAVEPOINT "+s.name); err != nil {
		return nil, errors.Join(fmt.Errorf("uow: savepoint: %w", err), s.pop(false))
	}
	return s, nil
}

// leave ends the level, whose work ended with err.
func (s *savepoint) leave(ctx context.Context, err error) error {
	if err == nil {
		tx := &s.level.root.tx
		if err = tx.exec(ctx, "RELEASE SAVEPOINT "+s.name); err == nil {
			s.recovered()
			return s.pop(true)
		}
		err = fmt.Errorf("uow: release savepoint: %w", tx.swallowed(err))
	}
	s.note(err)
	if undoErr := s.undo(ctx); undoErr != nil {
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

// push makes a level within the active one, and notes how many events the aggregates around it have: undo finds by the
// numbers which of them changed.
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
func (s *savepoint) pop(keep bool) error {
	r, inner := s.level.root, s.level
	r.mu.Lock()
	defer r.mu.Unlock()
	inner.ended = true
	// A level that is not the innermost one must not move its entries: they belong to a unit that runs beside it.
	if r.doomIfOpen(inner); r.active != inner {
		return r.doomed
	}
	outer := inner.parent
	r.active = outer
	if keep {
		outer.entries = append(outer.entries, inner.entries...)
		outer.hooks = append(outer.hooks, inner.hooks...)
		outer.last.Append(&inner.last)
		outer.proofs = append(outer.proofs, inner.proofs...)
		return nil
	}
	r.stale.add(inner.entries)
	for a, n := range s.before {
		if len(a.RecordedEvents()) != n {
			r.stale.mark(a)
		}
	}
	return nil
}

// undo rolls back to the savepoint. If that fails, the transaction must not be committed: it would contain the SQL of the level without its events.
func (s *savepoint) undo(ctx context.Context) error {
	r := s.level.root
	err := s.pop(false)
	if err == nil && !r.tx.closed {
		// The caller cannot cancel this: the outer unit needs it to go on.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.tx.limit)
		defer cancel()
		// RELEASE as well, or each failure would leave one more subtransaction open.
		err = r.tx.exec(ctx, "ROLLBACK TO SAVEPOINT "+s.name+"; RELEASE SAVEPOINT "+s.name)
	}
	if err != nil {
		err = fmt.Errorf("uow: roll back to savepoint: %w", err)
		r.doom(err)
	}
	return err
}

// hidden is an error that code around an inner Do may hide.
type hidden struct {
	err   error
	depth int
	fn    uintptr // 0: the level was begun by Manager.Begin
}

// note remembers the error of a level if a function is run again after it.
func (s *savepoint) note(err error) {
	r := s.level.root
	victim := r.victim()
	if err = r.tx.lost(err); !r.manager.again(err) {
		err = victim
	}
	if err == nil {
		return
	}
	r.tx.onPgx(func(c *pgx.Conn, t *pgsql.Trouble) { t.Forget(c) }) // the connection's error belongs to this level, which is over
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hidden = append(r.hidden, hidden{err, s.level.depth, s.function()})
}

// recovered forgets the errors of a level that was tried again.
func (s *savepoint) recovered() {
	r := s.level.root
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.hidden) == 0 {
		return
	}
	fn := s.function()
	r.hidden = slices.DeleteFunc(r.hidden, func(h hidden) bool { return h.depth == s.level.depth && h.fn == fn && fn != 0 })
}

// function identifies the function of the level by its code, since a loop makes a new closure each time.
func (s *savepoint) function() uintptr {
	if s.fn == nil {
		return 0
	}
	return reflect.ValueOf(s.fn).Pointer()
}

// victim returns the error that only the connection may have seen, if a function is run again after it.
func (r *root) victim() error {
	err := r.tx.victim()
	if err == nil || !r.manager.cfg.Retry.If(err) {
		return nil
	}
	return err
}
