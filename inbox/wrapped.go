package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
)

// wrapped is the handler that [Inbox.Wrap] returns.
type wrapped struct {
	of      *consumer
	letters letters
	next    messaging.Handler
	parked  messaging.Handler // next with traces and metrics: no consumer adds them for parked messages
	bulk    *bulkWriter       // instead of next for several messages; nil: next, one after the other
}

var (
	// errNoID does not occur with a correct adapter: every message of a broker has an id.
	errNoID = messaging.Permanent(errors.New("inbox: the message has no id: the broker's adapter must give it one"))
	// errDeadly is the error of a dead letter whose tries have ended without any outcome.
	errDeadly = errors.New("inbox: every try of the message ended with the death of its process, or without a stored outcome")
)

// lockedPause is how long a message is postponed after store.ErrLocked.
const lockedPause = 500 * time.Millisecond

// Handle enters m. It calls the handler if m was not entered before and no message of its key waits before it.
func (w *wrapped) Handle(ctx context.Context, m *messaging.Message) error {
	if m.ID == "" {
		return errNoID
	}
	// Called from the handler's own loop, the context may carry no message or another one.
	if in, ok := messaging.FromContext(ctx); !ok || in != m {
		ctx = messaging.NewContext(ctx, m)
	}
	if err := store.Validate(m); err != nil {
		return w.letters.giveUp(ctx, store.IdentifyInvalid(w.of.name, m), m, m.Attempt, err)
	}
	// The handler sees what it would see if the message were parked, so a retry from the database looks the same as the first try.
	if stored := store.AsStored(m, w.of.unordered); stored != m {
		m, ctx = stored, messaging.WithMessage(ctx, stored)
	}
	id := w.of.ordered(store.Identify(w.of.name, m))
	err := w.handle(ctx, id, m)
	if store.IsUnstorable(err) && !messaging.IsLeft(err) {
		return w.letters.giveUp(ctx, id, m, m.Attempt, err)
	}
	return err
}

// handle counts the try if it must, tries the message, and decides what becomes of it after a failure.
func (w *wrapped) handle(ctx context.Context, id store.Identity, m *messaging.Message) error {
	if w.of.leased && !w.of.storesFirst {
		return w.handleLeased(ctx, id, m)
	}
	var tried store.Attempts
	if w.of.mustCount(ctx, m) {
		a, isFresh, err := w.of.box.table.Attempts.Begin(ctx, id)
		if err != nil {
			return err
		}
		if !isFresh {
			w.of.box.count(ctx, w.of.name, outcomeDuplicate)
			return nil
		}
		if tried = a; w.of.retry.isDeadly(a.Earlier()) {
			return w.letters.giveUp(ctx, id, m, a.N-1, errDeadly)
		}
	}
	became, err := w.try(ctx, id, m, tried)
	switch {
	case errors.Is(err, store.ErrGeneration):
		return err
	case errors.Is(err, store.ErrLocked):
		w.of.box.table.Attempts.TakeBack(ctx, id, tried)
		w.of.box.count(ctx, w.of.name, outcomeLocked)
		return messaging.Postpone(lockedPause, err)
	case err != nil && ctx.Err() != nil:
		w.of.box.table.Attempts.TakeBack(ctx, id, tried)
		w.of.box.count(ctx, w.of.name, outcomeInterrupted)
		return err
	case err != nil:
		return w.failed(ctx, id, m, tried, err)
	}
	w.of.settled(ctx, became)
	return nil
}

// try runs the handler in a unit, if the message is fresh.
func (w *wrapped) try(ctx context.Context, id store.Identity, m *messaging.Message, tried store.Attempts) (became store.Entry, err error) {
	timed, cancel := w.of.timed(ctx)
	defer cancel()
	err = w.of.box.store.Units.Do(timed, func(ctx context.Context, u *uow.Unit) (err error) {
		became, err = w.of.enter(ctx, u, id)
		switch {
		case err != nil || became == store.Duplicate:
		case became == store.Early:
			err = w.of.setAside(ctx, u.DB(), id, m)
		case became == store.Behind:
			err = w.of.park(ctx, u, []store.Parking{{ID: id, Message: m}})
		case w.of.storesFirst:
			err = w.of.park(ctx, u, []store.Parking{{ID: id, Message: m}}, id)
		default:
			var skip bool
			if skip, err = w.of.watched(ctx, m.Topic, func(ctx context.Context) error { return w.next.Handle(ctx, m) }); skip {
				became = store.Passed
			}
		}
		if err != nil || !tried.Begun {
			return err
		}
		// This comes after the handler, because it locks a row that copies of the message in other processes update to count their tries.
		return w.of.box.table.Attempts.Forget(ctx, u.DB(), id)
	}, store.ReadCommitted())
	return became, explainLate(timed, errors.Join(err, w.of.box.table.Entries.Revoke(ctx, w.of.name, err, id)))
}

// failed decides what becomes of a message whose handler failed: another try here (it returns the error), a later try from the database (it
// parks the message), or none (it makes a dead letter).
func (w *wrapped) failed(ctx context.Context, id store.Identity, m *messaging.Message, tried store.Attempts, cause error) error {
	became := w.of.retry.decide(failure{cause: cause})
	if became == giveUp {
		return w.letters.giveUp(ctx, id, m, max(tried.N, m.Attempt), cause)
	}
	w.of.box.count(ctx, w.of.name, outcomeFailed)
	if _, within := uow.FromContext(ctx); within {
		return cause // the caller's unit may roll back everything that is written here
	}
	if became == awaitBuild {
		return w.awaitBuild(ctx, id, m, cause)
	}
	n, err := w.of.box.table.Attempts.Fail(ctx, id, tried, cause)
	if err != nil {
		// Returning the error means another try here. A process that cannot store the failure cannot park the message either.
		return errors.Join(cause, err)
	}
	switch became = w.of.retry.decide(failure{cause: cause, tries: n}); {
	case became == giveUp:
		return w.letters.giveUp(ctx, id, m, n, cause)
	case became == tryHere && !m.QueueFull():
		return cause
	default:
		return w.give(ctx, id, m, n, cause)
	}
}

// give parks a message that failed, and logs it.
func (w *wrapped) give(ctx context.Context, id store.Identity, m *messaging.Message, n int, cause error) error {
	wait := w.of.pause(n, cause)
	became, err := w.parkFailed(ctx, id, m, n, wait, cause)
	if err != nil || became == store.Duplicate || became == store.Early {
		return err
	}
	w.of.box.store.Log.WarnContext(ctx, "oncebox: message parked, its handler failed; it will be tried again, and what is behind it waits",
		"consumer", w.of.name, "topic", m.Topic, "type", m.Type, "id", m.ID, "tenant", id.Tenant, "ordering_key", id.Ordering,
		"attempts", n, "wait", wait, "error", cause)
	return nil
}

// parkFailed parks a message that failed, in a transaction of its own.
func (w *wrapped) parkFailed(
	ctx context.Context, id store.Identity, m *messaging.Message, n int, wait time.Duration, cause error,
) (became store.Entry, err error) {
	became, err = w.of.settle(ctx, id, func(ctx context.Context, u *uow.Unit, became store.Entry) error {
		if became == store.Early {
			return w.of.setAside(ctx, u.DB(), id, m)
		}
		waiting, err := w.of.box.table.Parked.Park(ctx, u.DB(), store.Parking{ID: id, Message: m, Attempts: n, Cause: cause, Behind: became == store.Behind})
		// Behind others the key has stopped already. waiting is 0 if the message is a dead letter by now.
		if err != nil || became == store.Behind || waiting == 0 {
			return err
		}
		u.AfterCommit(w.of.toldOfParked)
		return w.of.box.table.Keys.Stop(ctx, u.DB(), store.KeyFailed, wait, id)
	})
	if err != nil {
		return became, fmt.Errorf("inbox: park message %q, which failed with %q: %w", m.ID, cause.Error(), err)
	}
	if became == store.Fresh {
		w.of.settled(ctx, store.Behind)
	} else {
		w.of.settled(ctx, became)
	}
	return became, nil
}

// awaitBuild parks a message that this build does not know. Its tries do not count.
func (w *wrapped) awaitBuild(ctx context.Context, id store.Identity, m *messaging.Message, cause error) error {
	became, err := w.parkFailed(ctx, id, m, 0, w.of.retry.buildPause(0), cause)
	if err == nil && became != store.Duplicate {
		w.of.noteBuild(ctx, &m.Envelope, cause)
	}
	return err
}
