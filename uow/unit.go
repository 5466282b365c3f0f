package uow

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
)

// Unit is one unit of work, or one savepoint in it. It is used within the function that it was given to.
type Unit struct {
	root  *root
	depth int // 0: the transaction itself
	// ctx is the function's. Add needs it, for the tenant and the metadata, and has no parameter for it.
	ctx context.Context //nolint:containedctx // the unit lives exactly as long as the function that has this context

	mu      sync.Mutex
	entries []entry
	hooks   []func(context.Context)
}

// root is what a unit and its savepoints share.
type root struct {
	manager *Manager
	conn    bun.Conn
	tx      bun.Tx
	cancel  context.CancelFunc
	ended   atomic.Bool
	xid     string
	stale   staleSet
	hidden  atomic.Pointer[error] // see Unit.Retryable
}

// entry is an aggregate whose events are collected at the flush, or one envelope that was added by hand.
type entry struct {
	aggregate event.Aggregate
	envelope  event.Envelope
}

// staleSet holds the aggregates that lived through a rollback, within this try or an earlier one.
type staleSet map[event.Aggregate]struct{}

// DB returns the transaction. Use it for every statement of the unit.
func (u *Unit) DB() bun.IDB { return u.root.tx }

// Track makes the unit emit what the aggregates have recorded by the time it ends. An aggregate that is tracked twice
// is emitted once. Aggregates are emitted in the order in which they were tracked first. It panics when the unit has
// ended, because the events would be lost without a word.
func (u *Unit) Track(aggregates ...event.Aggregate) {
	if u.root.ended.Load() {
		panic("uow: Track: " + errEnded.Error())
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, a := range aggregates {
		u.track(a)
	}
}

func (u *Unit) track(a event.Aggregate) {
	if !slices.ContainsFunc(u.entries, func(e entry) bool { return e.aggregate == a }) {
		u.entries = append(u.entries, entry{aggregate: a})
	}
}

// Add emits something that no aggregate recorded. payload may be an [event.Event], json.RawMessage, []byte, or
// anything that can be encoded as JSON. What is wrong with it is reported here and loses nothing else.
func (u *Unit) Add(topic string, payload any, opts ...event.AddOption) error {
	if u.root.ended.Load() {
		return fmt.Errorf("uow: Add: %w", errEnded)
	}
	env, err := u.root.manager.maker.Payload(u.ctx, topic, payload, opts)
	if err != nil {
		return fmt.Errorf("uow: Add: %w", err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.entries = append(u.entries, entry{envelope: env})
	return nil
}

// AfterCommit runs fn once the unit is committed, and never if it is not. The context of fn is not cancelled with the
// caller's. fn cannot fail the unit any more.
func (u *Unit) AfterCommit(fn func(context.Context)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.hooks = append(u.hooks, fn)
}

func (u *Unit) context(ctx context.Context) context.Context {
	ctx = context.WithValue(ctx, managerKey{u.root.manager}, u)
	u.ctx = context.WithValue(ctx, unitKey{}, u)
	return u.ctx
}

// rollback ends the unit without COMMIT. It does nothing to a unit that has ended.
func (u *Unit) rollback() {
	r := u.root
	if r.ended.Swap(true) {
		return
	}
	u.mu.Lock()
	for _, e := range u.entries {
		if e.aggregate != nil {
			r.stale[e.aggregate] = struct{}{}
		}
	}
	u.mu.Unlock()
	// The rollback is not the caller's to cancel either. If the connection is gone, so is the transaction.
	timer := time.AfterFunc(r.manager.cfg.CommitTimeout, r.cancel)
	_ = r.tx.Rollback()
	timer.Stop()
	r.release()
}

// release gives the connection back to the pool.
func (r *root) release() {
	r.cancel()
	_ = r.conn.Close()
}
