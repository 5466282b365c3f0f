package uow

import (
	"context"
	"errors"
)

// Tx is a unit of work that its owner ends, see [Manager.Begin]. It is not safe for concurrent use.
type Tx struct {
	*Unit

	savepoint *savepoint // nil: the transaction itself
	done      bool
}

// errDone is the error of a Commit after the unit was committed or rolled back.
var errDone = errors.New("uow: Commit: the unit has been committed or rolled back already")

// Begin begins a unit of work for code that cannot put its work into a function. It differs from [Manager.Do] in three ways: nothing is run again,
// so [ErrConflict] and similar errors are returned to the caller; a panic rolls back only if the caller defers Rollback; and the unit holds a
// connection until it is ended, so always defer Rollback.
//
//	tx, err := units.Begin(ctx)
//	if err != nil {
//		return err
//	}
//	defer tx.Rollback()
//	...
//	return tx.Commit()
//
// The context of the unit is [Tx.Context]. Begin with a context that carries a unit of this manager begins a savepoint.
func (m *Manager) Begin(ctx context.Context, opts ...Option) (*Tx, error) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	if outer := m.unitFrom(ctx); outer != nil {
		if outer.root.manager != m {
			return nil, errOtherManager
		}
		s, err := outer.root.enter(ctx, &o)
		if err != nil {
			return nil, err
		}
		return &Tx{Unit: s.level.in(ctx), savepoint: s}, nil
	}
	l, err := m.begin(ctx, &o)
	if err != nil {
		return nil, err
	}
	return &Tx{Unit: l.in(ctx)}, nil
}

// Context returns the context of Begin with the unit in it. Pass it to code that finds its unit in the context.
func (t *Tx) Context() context.Context { return t.ctx }

// Commit flushes and commits, with the outcomes of [Manager.Do]. A unit can be ended once.
func (t *Tx) Commit() error {
	if t.done {
		return errDone
	}
	if t.savepoint != nil {
		err := t.rules(t.ctx) // if it panics, Rollback has something to do
		t.done = true
		return t.savepoint.leave(t.ctx, err)
	}
	t.done = true
	return t.end(t.ctx, func() error { return nil })
}

// Rollback ends the unit without COMMIT. It does nothing to a unit that has ended, so that it can be deferred. Only a savepoint returns an error:
// the transaction around it cannot be committed any more.
func (t *Tx) Rollback() error {
	if t.done {
		return nil
	}
	t.done = true
	if t.savepoint != nil {
		return t.savepoint.undo(t.ctx)
	}
	// The connection goes back to the pool here. Without the deferred Rollback it would be lost to the pool
	// until its session ends.
	t.root.rollback()
	t.root.manager.count(t.ctx, rolledBack)
	return nil
}
