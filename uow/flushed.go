package uow

import (
	"context"
	"errors"
	"fmt"

	"github.com/oncebox/oncebox/event"
)

// errFlushed is why a unit takes no more events.
var errFlushed = errors.New("the unit has given its Token: announce what happened before that")

// flushed is what the sinks have been given before the end of the unit.
type flushed struct {
	events     []event.Envelope
	aggregates []event.Aggregate
	recorded   []int // by each of them
}

// Token gives the sinks what the unit has announced, and returns the token of it, for an answer that is stored in the unit itself. Of a
// unit that is not committed the token names nothing that will ever be handled. Call it last, and in the outermost unit: afterwards
// [Unit.Track] panics, [Unit.Add] fails, and an aggregate that records more fails the unit. It costs a round trip, because only the
// sinks know the ids of events that repeat earlier ones. Where nothing is stored, [WithToken] is cheaper.
func (u *Unit) Token(ctx context.Context) (Token, error) {
	r := u.root
	if r.flushed == nil {
		if err := r.flushEarly(ctx, u.level); err != nil {
			return "", err
		}
	}
	return makeToken(r.flushed.events), nil
}

func (r *root) flushEarly(ctx context.Context, u *level) error {
	if err := r.handle(ctx, u); err != nil {
		return err
	}
	r.mu.Lock()
	outermost, entries := u.parent == nil && r.active == u && !u.ended, u.entries
	r.mu.Unlock()
	if !outermost {
		return errors.New("uow: Token: the unit has ended, is within another one, or one within it has not ended: ask the outermost unit last")
	}
	f := &flushed{}
	var err error
	if f.events, f.aggregates, err = r.collect(entries); err != nil {
		return err
	}
	for _, a := range f.aggregates {
		f.recorded = append(f.recorded, len(a.RecordedEvents()))
	}
	if len(f.events) > 0 {
		if err := r.flush(ctx, f.events, nil); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flushed = f
	return nil
}

// unchanged fails if an aggregate has recorded events that nobody would announce.
func (f *flushed) unchanged() error {
	for i, a := range f.aggregates {
		if len(a.RecordedEvents()) != f.recorded[i] {
			return fmt.Errorf("uow: %s %s recorded events later: %w", a.AggregateType(), a.AggregateID(), errFlushed)
		}
	}
	return nil
}
