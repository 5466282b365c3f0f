package uow

import (
	"context"
	"fmt"

	"github.com/oncebox/oncebox/event"
)

// handler calls a function if the event is of its type.
type handler func(ctx context.Context, u *Unit, e event.Event) error

// On registers fn for every event of type T that an aggregate has recorded. fn is called within the unit, after the outermost function has returned
// and before the flush. Use it for rules that concern several aggregates and have to hold at COMMIT. An error of fn rolls the unit back. In a unit
// of [WithNestedChecks], which a middleware of httpmw begins around a handler, the outermost function is that of the handler's own Do: this Do is
// undone, and returns the error.
//
// Functions are called in the order in which they were given, event by event in the order in which the aggregates were tracked. Events that they
// track or record themselves are handled in turn, up to Config.MaxHandled events for each outermost function. An aggregate that was saved before
// has to be saved again when it records more.
//
// Call it at start, before the first unit: it is not safe for concurrent use with one.
func On[T event.Event](m *Manager, fn func(ctx context.Context, u *Unit, e T) error) {
	m.handlers = append(m.handlers, func(ctx context.Context, u *Unit, e event.Event) error {
		switch v := any(e).(type) {
		case T:
			return fn(ctx, u, v)
		case *T:
			return fn(ctx, u, *v)
		default:
			return nil
		}
	})
}

// handle calls the handlers for the events of the level, until they have seen every event.
func (u *level) handle(ctx context.Context) error {
	if len(u.root.manager.handlers) == 0 {
		return nil
	}
	if u.root.handled == nil {
		u.root.handled = map[event.Aggregate]int{}
	}
	d := dispatch{level: u, handled: u.root.handled}
	// A handler may record events on an aggregate that was passed already, so the aggregates are gone
	// through until a round finds nothing new.
	for again := true; again; {
		before := d.count
		for i := 0; ; i++ {
			e, some := u.entry(i)
			if !some {
				break
			}
			if e.aggregate == nil {
				continue
			}
			if err := d.all(ctx, e); err != nil {
				return err
			}
		}
		again = d.count > before
	}
	return nil
}

// entry returns the entry at i. The list may grow while handlers run.
func (u *level) entry(i int) (e entry, some bool) {
	u.root.mu.Lock()
	defer u.root.mu.Unlock()
	if i >= len(u.entries) {
		return e, false
	}
	return u.entries[i], true
}

// dispatch passes the events of one level to the handlers.
type dispatch struct {
	level   *level
	handled map[event.Aggregate]int // of the unit
	// count is the number of events of this level. Events of other levels, undone ones included, do not show that handlers cause one another's
	// events.
	count int
}

// all calls the handlers for the events of the aggregate that they have not seen, also for events that it records meanwhile.
func (d *dispatch) all(ctx context.Context, e entry) error {
	a, u := e.aggregate, d.level.in(merged{ctx, context.WithoutCancel(e.ctx)})
	limit := u.root.manager.cfg.MaxHandled
	unseen := func() []event.Recorded {
		all := a.RecordedEvents()
		return all[min(d.handled[a], len(all)):]
	}
	for fresh := unseen(); len(fresh) > 0; fresh = unseen() {
		for _, recorded := range fresh {
			d.handled[a]++
			if d.count++; d.count > limit {
				return fmt.Errorf("uow: more than %d events in one unit, the latest is %s of %s %s: "+
					"do event handlers record events that call each other in a circle? If so many events are intended, raise "+
					"Config.MaxHandled", limit, recorded.Event.EventType(), a.AggregateType(), a.AggregateID())
			}
			if err := d.one(u, recorded.Event); err != nil {
				return err
			}
		}
	}
	return nil
}

// one calls each handler for one event. The order of registration is kept, because a handler may rely on
// what an earlier one did.
func (d *dispatch) one(u *Unit, e event.Event) error {
	if err := interrupted(u.ctx); err != nil {
		return fmt.Errorf("uow: before COMMIT: %w", err)
	}
	for _, fn := range u.root.manager.handlers {
		if err := fn(u.ctx, u, e); err != nil {
			return fmt.Errorf("uow: handle %s: %w", e.EventType(), err)
		}
	}
	return nil
}

// rules runs, for a Do inside a middleware's unit, the checks that run at the end of a unit of its own: see [WithNestedChecks]. It does nothing for
// other levels.
func (u *level) rules(ctx context.Context) error {
	if !u.parent.around {
		return nil
	}
	// The code within a middleware's unit must get its own errors, because the middleware can only answer with 500.
	if err := u.handle(ctx); err != nil {
		return err
	}
	r := u.root
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range u.entries {
		sinks := len(r.manager.sinks) > 0
		if e.aggregate == nil && !sinks {
			return noSink(e.envelope.Type)
		}
		if e.aggregate == nil {
			continue
		}
		recorded := e.aggregate.RecordedEvents()
		if err := r.check(e.aggregate, len(recorded)); err != nil {
			return err
		}
		if len(recorded) > 0 && !sinks {
			return noSink(recorded[0].Event.EventType())
		}
	}
	return nil
}

// merged has the values of the context that an aggregate was tracked with, so that the events of handlers get the same tenant and the same cause.
// It is cancelled with the unit's context, because the other context may have ended with the function that tracked the aggregate.
type merged struct {
	context.Context //nolint:containedctx // it is one itself

	values context.Context //nolint:containedctx // see above
}

func (m merged) Value(key any) any {
	if v := m.values.Value(key); v != nil {
		return v
	}
	return m.Context.Value(key)
}
