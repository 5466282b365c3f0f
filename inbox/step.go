package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/calls"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/retry"
	"github.com/oncebox/oncebox/uow"
)

// steps holds the steps of one message. Its handler may run several at once.
type steps struct {
	mu     sync.Mutex
	loaded bool
	done   map[string][]byte   // results of earlier tries, by name
	used   map[string]struct{} // names used in this try
}

// Step calls fn, which makes one call to another system, and stores its result. When the message is handled again, after a failure, a crash
// or as a replayed dead letter, the stored result is returned and fn is not called.
//
// Pass key to the other side, so that it can recognize a repeated call: it is the same in every try of this step of this message, has 32
// letters and digits, and fits into any header, as Idempotency-Key for example. It is needed although results are stored: a process that
// dies after the call and before its result is stored makes the call again.
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
	if stored, done := l.steps.done[name]; done {
		if err := json.Unmarshal(stored, &result); err != nil {
			return result, messaging.Permanent(fmt.Errorf("inbox: Step %q: decode the result of an earlier try: %w", name, err))
		}
		return result, nil
	}
	stored := false
	defer func() {
		if !stored {
			l.steps.release(name)
		}
	}()
	if result, err = fn(calls.Within(ctx, name), l.stepKey(name)); err != nil {
		return result, err
	}
	encoded, err := json.Marshal(result)
	if err != nil {
		return result, messaging.Permanent(fmt.Errorf("inbox: Step %q: encode its result: %w", name, err))
	}
	err = l.insist(ctx, name, encoded)
	stored = err == nil
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
	if _, done := l.steps.done[name]; done {
		return nil
	}
	committed := false
	defer func() {
		if !committed {
			l.steps.release(name)
		}
	}()
	err = l.w.box.store.Units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		if err := fn(calls.Within(ctx, name), u); err != nil {
			return err
		}
		// This comes last, because it locks the lease, which cannot be renewed until COMMIT.
		return l.storeStep(ctx, u.DB(), name, []byte("null"))
	}, store.ReadCommitted())
	committed = err == nil
	return err
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
	if _, within := uow.FromContext(ctx); within {
		return nil, fmt.Errorf("inbox: %s %q: within a unit of work it could be undone: call it outside", function, name)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("inbox: %s %q: %w", function, name, context.Cause(ctx))
	}
	if err := l.loadSteps(ctx); err != nil {
		return nil, fmt.Errorf("inbox: %s %q: look for what earlier tries have done: %w", function, name, err)
	}
	if !l.steps.use(name) {
		return nil, fmt.Errorf("inbox: %s %q: the name was used before: give each step of the handler its own", function, name)
	}
	return l, nil
}

// use reserves a name for this try. It returns false if the name is in use.
func (s *steps) use(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, used := s.used[name]
	s.used[name] = struct{}{}
	return !used
}

// release lets a step that was not done be tried again.
func (s *steps) release(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.used, name)
}

// loadSteps reads the steps of earlier tries, once: only the owner of the lease can add steps.
func (l *lease) loadSteps(ctx context.Context) error {
	l.steps.mu.Lock()
	defer l.steps.mu.Unlock()
	if l.steps.loaded {
		return nil
	}
	done, err := l.w.box.table.Steps.Load(ctx, l.id)
	if err != nil {
		return err
	}
	l.steps.loaded, l.steps.done, l.steps.used = true, done, map[string]struct{}{}
	return nil
}

// insist stores the result of a call, because a result that is not stored means that the call is made again. So it goes on after the
// handler's context was cancelled, and tries again after a lost connection.
func (l *lease) insist(ctx context.Context, name string, result []byte) error {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.w.box.cfg.LeaseTTL)
	defer cancel()
	for attempt := 1; ; attempt++ {
		err := l.storeStep(bounded, l.w.box.store.DB(bounded), name, result)
		if err == nil || !pgerr.IsConnectionError(err) ||
			(retry.Policy{Delay: 10 * time.Millisecond, MaxDelay: time.Second}).Wait(bounded, attempt) != nil {
			return err
		}
	}
}

func (l *lease) storeStep(ctx context.Context, db bun.IDB, name string, result []byte) error {
	held, err := l.w.box.table.Steps.Store(ctx, db, l.id, l.name, name, result)
	if err == nil && !held {
		l.held.Lose()
		err = ErrLeaseLost
	}
	if err != nil && !errors.Is(err, ErrLeaseLost) {
		err = fmt.Errorf("inbox: store the result of step %q: %w", name, pgerr.Explain(err))
	}
	return err
}
