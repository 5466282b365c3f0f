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

// Step calls fn, which makes one call to another system, and stores its result. When the message is handled again, after a failure, a crash
// or as a replayed dead letter, the stored result is returned and fn is not called.
//
// Pass key to the other side, so that it can recognize a repeated call: it is the same in every try of this step of this message, has 32
// letters and digits, and fits into any header, as Idempotency-Key for example. It is needed although results are stored: a process that
// dies after the call and before its result is stored makes the call again. docs/inbox.md shows a call that must not be repeated.
//
// name identifies the step within the handler, at most 255 bytes. A name may be used once in a try, so in a loop it has to contain the
// number of the round. T must survive JSON: a result that cannot be encoded, or cannot be decoded after a deployment, makes a dead letter
// of the message. Results are stored in plain text, so they should hold no secrets. They are removed when the message is settled.
//
// An error of fn is returned as it is and stores nothing. [ErrLeaseLost] means that the result was not stored, and that the
// handler should end.
func Step[T any](ctx context.Context, name string, fn func(ctx context.Context, key string) (T, error)) (result T, err error) {
	l, err := beginStep(ctx, "Step", name)
	if err != nil {
		return result, err
	}
	if stored, done := l.steps.Done(name); done {
		if err := json.Unmarshal(stored, &result); err != nil {
			return result, messaging.Permanent(fmt.Errorf("inbox: Step %q: decode the result of an earlier try: %w", name, err))
		}
		return result, nil
	}
	err = l.steps.Run(name, func() (err error) {
		if result, err = fn(calls.Within(ctx, name), l.stepKey(name)); err != nil {
			return err
		}
		encoded, err := json.Marshal(result)
		if err != nil {
			return messaging.Permanent(fmt.Errorf("inbox: Step %q: encode its result: %w", name, err))
		}
		// Without the result the call is made again.
		return l.held.Insist(ctx, func(ctx context.Context) error {
			return l.storeStep(steps.Storing(ctx), l.of.box.store.DB(ctx), name, encoded)
		})
	})
	return result, err
}

// StepInUnit calls fn in a unit of work and marks the step as done in the same transaction: what fn writes and emits through the
// unit happens once per message, whatever becomes of the handler. The name is as for [Step], whose names it shares.
//
// An error of fn rolls the unit back and is returned. [ErrLeaseLost] does the same if another process has the lease by the end.
func StepInUnit(ctx context.Context, name string, fn func(ctx context.Context, u *uow.Unit) error) error {
	l, err := beginStep(ctx, "StepInUnit", name)
	if err != nil {
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

// beginStep returns the lease of the handler that ctx belongs to, with the steps that are done. It refuses a name that was used before.
func beginStep(ctx context.Context, function, name string) (*lease, error) {
	l, ok := ctx.Value(leaseKey{}).(*lease)
	if !ok || l.held == nil {
		return nil, fmt.Errorf("inbox: %s %q was called outside of a handler of WrapLeased: pass the context that the handler got", function, name)
	}
	if err := event.ValidateIdentifier("name", name); name == "" || err != nil {
		return nil, fmt.Errorf("inbox: %s %q: the name is empty or not an identifier", function, name)
	}
	// Within a unit the result would be stored with it, and lost with it, although the call to the other system was made.
	if _, within := uow.FromContext(ctx); within {
		return nil, fmt.Errorf("inbox: %s %q: within a unit of work it could be undone: call it outside", function, name)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("inbox: %s %q: %w", function, name, context.Cause(ctx))
	}
	if err := l.steps.Load(func() (map[string][]byte, error) { return l.of.box.table.Steps.Load(ctx, l.id) }); err != nil {
		return nil, fmt.Errorf("inbox: %s %q: look for what earlier tries have done: %w", function, name, err)
	}
	if !l.steps.Use(name) {
		return nil, fmt.Errorf("inbox: %s %q: the name was used before: give each step of the handler its own", function, name)
	}
	return l, nil
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
