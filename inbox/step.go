package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/calls"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/steps"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
)

// Step runs step.Call for the handler. A result that cannot be encoded, or cannot be decoded after a deployment, makes a dead letter of the message.
func (l *lease) Step(ctx context.Context, name string, result any, call func(ctx context.Context, key string) error) error {
	if err := l.beginStep(ctx, "Call", name); err != nil {
		return err
	}
	if stored, done := l.steps.Done(name); done {
		if err := json.Unmarshal(stored, result); err != nil {
			return messaging.Permanent(fmt.Errorf("inbox: Call %q: decode the result of an earlier try: %w", name, err))
		}
		return nil
	}
	return l.steps.Run(name, func() error {
		if err := call(calls.Within(ctx, name), l.stepKey(name)); err != nil {
			return err
		}
		encoded, err := json.Marshal(result)
		if err != nil {
			return messaging.Permanent(fmt.Errorf("inbox: Call %q: encode its result: %w", name, err))
		}
		// Without the result the call is made again.
		return l.held.Insist(ctx, func(ctx context.Context) error {
			return l.storeStep(steps.Storing(ctx), l.of.box.store.DB(ctx), name, encoded)
		})
	})
}

// StepInUnit calls fn in a unit of work and marks the step as done in the same transaction: what fn writes and emits through the
// unit happens once per message, whatever becomes of the handler. The name is as for step.Call, whose names it shares.
//
// An error of fn rolls the unit back and is returned. [ErrLeaseLost] does the same if another process has the lease by the end.
func StepInUnit(ctx context.Context, name string, fn func(ctx context.Context, u *uow.Unit) error) error {
	l, ok := ctx.Value(leaseKey{}).(*lease)
	if !ok || l.held == nil {
		return fmt.Errorf("inbox: StepInUnit %q was called outside of a handler of WrapLeased: pass the context that the handler got", name)
	}
	if err := l.beginStep(ctx, "StepInUnit", name); err != nil {
		return err
	}
	if _, done := l.steps.Done(name); done {
		return nil
	}
	return l.steps.Run(name, func() error {
		return l.of.box.store.Units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
			if err := fn(calls.Within(ctx, name), u); err != nil {
				return err
			}
			// This comes last, because it locks the lease, which cannot be renewed until COMMIT.
			return l.storeStep(ctx, u.DB(), name, []byte("null"))
		}, store.ReadCommitted())
	})
}

// beginStep reads which steps are done. It refuses a name that was used before.
func (l *lease) beginStep(ctx context.Context, function, name string) error {
	if err := event.ValidateIdentifier("name", name); name == "" || err != nil {
		return fmt.Errorf("inbox: %s %q: the name is empty or not an identifier", function, name)
	}
	// Within a unit the result would be stored with it, and lost with it, although the call to the other system was made.
	if _, within := uow.FromContext(ctx); within {
		return fmt.Errorf("inbox: %s %q: within a unit of work it could be undone: call it outside", function, name)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("inbox: %s %q: %w", function, name, context.Cause(ctx))
	}
	if err := l.steps.Load(func() (map[string][]byte, error) { return l.of.box.table.Steps.Load(ctx, l.id) }); err != nil {
		return fmt.Errorf("inbox: %s %q: look for what earlier tries have done: %w", function, name, err)
	}
	if !l.steps.Use(name) {
		return fmt.Errorf("inbox: %s %q: the name was used before: give each step of the handler its own", function, name)
	}
	return nil
}

func (l *lease) storeStep(ctx context.Context, db bun.IDB, name string, result []byte) error {
	held, err := l.of.box.table.Steps.Store(ctx, db, l.id, l.name, name, result)
	// Refused under the lease means that another process has it. From here on all steps of this handler fail.
	if err == nil && !held {
		l.held.Lose()
		err = ErrLeaseLost
	}
	if err != nil && !errors.Is(err, ErrLeaseLost) {
		err = fmt.Errorf("inbox: store the result of step %q: %w", name, pgerr.Explain(err))
	}
	return err
}
