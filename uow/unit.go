package uow

import (
	"context"
	"fmt"
	"reflect"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
)

// Unit is one unit of work, or one savepoint in it. It is used within the function that it was given to, also from
// goroutines that end before that function returns.
//
// What it is given belongs to the innermost savepoint that is open, whichever [Unit] it is given to. So it is with
// statements, and so an event cannot outlive the data that it announces.
type Unit struct {
	root *root
	// parent is the level around this one, nil for the transaction itself.
	parent *Unit
	depth  int
	// around: it is not of the code that runs within it, and neither are those around it.
	around bool
	// ctx is the function's. Track and Add need it, for tenant, metadata and trace, and have no parameter for it.
	ctx context.Context //nolint:containedctx // the unit lives exactly as long as the function that has this context

	// Guarded by root.mu.
	ended   bool
	entries []entry
	hooks   []func(context.Context)
	// last are statements that go after all others.
	last []*pgx.QueuedQuery
}

// entry is an aggregate whose events are collected at the flush, or one envelope that was added by hand.
type entry struct {
	ctx       context.Context //nolint:containedctx // see Unit.ctx
	aggregate event.Aggregate
	envelope  event.Envelope
}

// DB returns the transaction. Use it for every statement of the unit, and leave COMMIT and ROLLBACK to the unit.
func (u *Unit) DB() bun.IDB { return u.root.tx }

// Track makes the unit emit what the aggregates have recorded by the time it ends. An aggregate that is tracked twice
// is emitted once. Aggregates are emitted in the order in which they were tracked first. It panics when the unit has
// ended, because the events would be lost without a word, and when something is not an aggregate that can be told from
// others: nil, or a value that cannot be compared.
func (u *Unit) Track(aggregates ...event.Aggregate) {
	entries := make([]entry, len(aggregates))
	for i, a := range aggregates {
		if !identifiable(a) {
			panic(fmt.Sprintf("uow: Track: %#v is not a pointer to an aggregate", a))
		}
		entries[i] = entry{ctx: u.ctx, aggregate: a}
	}
	if err := u.give(entries, nil); err != nil {
		panic("uow: Track: " + err.Error())
	}
}

// identifiable tells whether one instance of the aggregate can be told from another one.
func identifiable(a event.Aggregate) bool {
	v := reflect.ValueOf(a)
	if v.IsValid() && v.Kind() == reflect.Pointer {
		return !v.IsNil()
	}
	return v.IsValid() && v.Comparable()
}

// Add emits something that no aggregate recorded. payload may be an [event.Event], json.RawMessage, []byte, or
// anything that can be encoded as JSON. What is wrong with it is reported here and loses nothing else.
func (u *Unit) Add(topic string, payload any, opts ...event.AddOption) error {
	env, err := u.root.manager.maker.Payload(u.ctx, topic, payload, opts)
	if err == nil {
		err = u.give([]entry{{envelope: env}}, nil)
	}
	if err != nil {
		return fmt.Errorf("uow: Add: %w", err)
	}
	return nil
}

// AfterCommit runs fn once the unit is committed, and never if it is not. The context of fn is not cancelled with the
// caller's. fn cannot fail the unit any more: a panic of fn is logged. It panics when the unit has ended.
func (u *Unit) AfterCommit(fn func(context.Context)) {
	if err := u.give(nil, fn); err != nil {
		panic("uow: AfterCommit: " + err.Error())
	}
}

func (u *Unit) give(entries []entry, hook func(context.Context)) error {
	r := u.root
	r.mu.Lock()
	defer r.mu.Unlock()
	if u.ended {
		return errEnded
	}
	r.active.entries = append(r.active.entries, entries...)
	if hook != nil {
		r.active.hooks = append(r.active.hooks, hook)
	}
	return nil
}

type unitKey struct{}

// FromContext returns the innermost unit that ctx carries, of whatever manager.
func FromContext(ctx context.Context) (*Unit, bool) {
	u := find(ctx, func(*Unit) bool { return true })
	return u, u != nil
}

// find returns the innermost open unit that fits. A goroutine or a hook that outlived its unit finds the one around it,
// or none.
func find(ctx context.Context, fits func(*Unit) bool) *Unit {
	u, _ := ctx.Value(unitKey{}).(*Unit)
	for u != nil && (!u.open() || !fits(u)) {
		if u.parent != nil {
			u = u.parent
		} else {
			u = u.root.outer
		}
	}
	return u
}

func (u *Unit) open() bool {
	u.root.mu.Lock()
	defer u.root.mu.Unlock()
	return !u.ended
}

func (u *Unit) context(ctx context.Context) context.Context {
	u.ctx = context.WithValue(ctx, unitKey{}, u)
	return u.ctx
}
