package inbox

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/skipped"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
)

// wrapped is the handler that [Inbox.Wrap] returns.
type wrapped struct {
	settings

	box      *Inbox
	consumer string
	next     messaging.Handler
	parked   messaging.Handler // next with traces and metrics: no consumer adds them for parked messages
	bulk     *bulkWriter       // instead of next for several messages; nil: next, one after the other
	of       *store.Membership // nil: it is not the handler of a read model

	// unproved is the number of messages whose try is still to be counted before the handler runs, see Config.CrashGuard.
	unproved atomic.Int64
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
	if in, ok := messaging.FromContext(ctx); !ok || in != m {
		ctx = messaging.NewContext(ctx, m)
	}
	if err := store.Validate(m); err != nil {
		return w.giveUp(ctx, store.IdentifyInvalid(w.consumer, m), m, m.Attempt, err)
	}
	if stored := store.AsStored(m, w.unordered); stored != m {
		m, ctx = stored, messaging.WithMessage(ctx, stored)
	}
	id := w.ordered(store.Identify(w.consumer, m))
	err := w.handle(ctx, id, m)
	if store.IsUnstorable(err) && !messaging.IsLeft(err) {
		return w.giveUp(ctx, id, m, m.Attempt, err)
	}
	return err
}

// ordered returns id, without its order if the consumer is Unordered.
func (w *wrapped) ordered(id store.Identity) store.Identity {
	if w.unordered {
		return id.Disordered()
	}
	return id
}

// handle counts the try if it must, tries the message, and decides what becomes of it after a failure.
func (w *wrapped) handle(ctx context.Context, id store.Identity, m *messaging.Message) error {
	if w.leased && !w.storesFirst {
		return w.handleLeased(ctx, id, m)
	}
	var tried store.Attempts
	if w.mustCount(ctx, m) {
		a, isFresh, err := w.box.table.Attempts.Begin(ctx, id)
		if err != nil {
			return err
		}
		if !isFresh {
			w.box.count(ctx, w.consumer, outcomeDuplicate)
			return nil
		}
		if tried = a; w.retry.isDeadly(a.Earlier()) {
			return w.giveUp(ctx, id, m, a.N-1, errDeadly)
		}
	}
	became, err := w.try(ctx, id, m, tried)
	switch {
	case errors.Is(err, store.ErrGeneration):
		return err
	case errors.Is(err, store.ErrLocked):
		w.box.table.Attempts.TakeBack(ctx, id, tried)
		w.box.count(ctx, w.consumer, outcomeLocked)
		return messaging.Postpone(lockedPause, err)
	case err != nil && ctx.Err() != nil:
		w.box.table.Attempts.TakeBack(ctx, id, tried)
		w.box.count(ctx, w.consumer, outcomeInterrupted)
		return err
	case err != nil:
		return w.failed(ctx, id, m, tried, err)
	}
	w.settled(ctx, became)
	return nil
}

// mustCount reports whether the try has to be counted before the handler runs: because it is not the first try, or because an earlier try
// may have killed its process. In a unit of the caller it is false, because the count could not be committed before.
func (w *wrapped) mustCount(ctx context.Context, m *messaging.Message) bool {
	if _, within := uow.FromContext(ctx); within || w.storesFirst {
		return false
	}
	return m.Attempt > 1 || w.unproved.Load() > 0
}

// try runs the handler in a unit, if the message is fresh.
func (w *wrapped) try(ctx context.Context, id store.Identity, m *messaging.Message, tried store.Attempts) (became store.Entry, err error) {
	timed, cancel := w.timed(ctx)
	defer cancel()
	err = w.box.store.Units.Do(timed, func(ctx context.Context, u *uow.Unit) (err error) {
		became, err = w.enter(ctx, u, id)
		switch {
		case err != nil || became == store.Duplicate:
		case became == store.Early:
			err = w.setAside(ctx, u.DB(), id, m)
		case became == store.Behind, w.storesFirst:
			err = w.store(ctx, u, store.Parking{ID: id, Message: m}, became)
		default:
			var skip bool
			if skip, err = w.watched(ctx, m.Topic, func(ctx context.Context) error { return w.next.Handle(ctx, m) }); skip {
				became = store.Passed
			}
		}
		if err != nil || !tried.Begun {
			return err
		}
		// This comes after the handler, because it locks a row that copies of the message in other processes update to count their tries.
		return w.box.table.Attempts.Forget(ctx, u.DB(), id)
	}, store.ReadCommitted())
	return became, explainLate(timed, errors.Join(err, w.box.table.Entries.Revoke(ctx, w.consumer, err, id)))
}

// store parks a message that was not tried. It stops the key, unless that does not flow already.
func (w *wrapped) store(ctx context.Context, u *uow.Unit, p store.Parking, became store.Entry) error {
	switch became {
	case store.Behind:
		return w.storeAll(ctx, u, []store.Parking{p}, nil)
	default:
		return w.storeAll(ctx, u, []store.Parking{p}, []store.Identity{p.ID})
	}
}

// storeAll parks messages that were not tried, and stops the keys of flow, which were flowing.
func (w *wrapped) storeAll(ctx context.Context, u *uow.Unit, list []store.Parking, flow []store.Identity) error {
	if len(list) == 0 {
		return nil
	}
	if _, err := w.box.table.Parked.Park(ctx, u.DB(), list...); err != nil {
		return fmt.Errorf("inbox: park %d messages, the first is %s: %w", len(list), list[0].ID.Key, err)
	}
	if len(flow) == 0 {
		return nil
	}
	if err := w.box.table.Keys.Stop(ctx, u.DB(), store.KeyWaiting, 0, flow...); err != nil {
		return fmt.Errorf("inbox: store message %s: %w", list[0].ID.Key, err)
	}
	u.AfterCommit(w.toldOfParked)
	return nil
}

// toldOfParked wakes RunParked in this process, and logs an error if no process runs it.
func (w *wrapped) toldOfParked(ctx context.Context) {
	w.box.wake()
	if w.box.runners.Load() == 0 {
		w.box.process.WarnIfUnattended(ctx, w.consumer)
	}
}

// settled counts a message that needs nothing more from the broker.
func (w *wrapped) settled(ctx context.Context, became store.Entry) {
	w.box.count(ctx, w.consumer, w.outcome(became))
	if became == store.Passed {
		skipped.Add(ctx, 1) // for the metrics of the consumer
	}
	if became != store.Duplicate {
		w.survived()
	}
}

// survived counts a message that did not kill the process.
func (w *wrapped) survived() {
	if w.unproved.Load() > 0 {
		w.unproved.Add(-1)
	}
}

// outcome names the result of an entry for the metrics.
func (w *wrapped) outcome(became store.Entry) string {
	switch {
	case became == store.Duplicate:
		return outcomeDuplicate
	case became == store.Passed:
		return outcomeSkipped
	case became == store.Behind, became == store.Early, w.storesFirst:
		return outcomeParked
	default:
		return outcomeHandled
	}
}

// failed decides what becomes of a message whose handler failed: another try here (it returns the error), a later try from the database (it
// parks the message), or none (it makes a dead letter).
func (w *wrapped) failed(ctx context.Context, id store.Identity, m *messaging.Message, tried store.Attempts, cause error) error {
	if hopeless(cause) {
		return w.giveUp(ctx, id, m, max(tried.N, m.Attempt), cause)
	}
	w.box.count(ctx, w.consumer, outcomeFailed)
	if _, within := uow.FromContext(ctx); within {
		return cause // the caller's unit may roll back everything that is written here
	}
	if needsBuild(cause) {
		return w.awaitBuild(ctx, id, m, cause)
	}
	n, err := w.box.table.Attempts.Fail(ctx, id, tried, cause)
	if err != nil {
		// Returning the error means another try here. A process that cannot store the failure cannot park the message either.
		return errors.Join(cause, err)
	}
	if w.retry.isExhausted(n, 0) {
		return w.giveUp(ctx, id, m, n, cause)
	}
	wait, asked := messaging.RetryDelay(cause)
	if n < w.retry.Tries && (!asked || wait < w.retry.Delay) && !m.QueueFull() {
		return cause
	}
	return w.give(ctx, id, m, n, cause)
}

// give parks a message that failed, and logs it.
func (w *wrapped) give(ctx context.Context, id store.Identity, m *messaging.Message, n int, cause error) error {
	wait := w.pause(n, cause)
	became, err := w.parkFailed(ctx, id, m, n, wait, cause)
	if err != nil || became == store.Duplicate || became == store.Early {
		return err
	}
	w.box.store.Log.WarnContext(ctx, "oncebox: message parked, its handler failed; it will be tried again, and what is behind it waits", "consumer", w.consumer,
		"topic", m.Topic, "type", m.Type, "id", m.ID, "tenant", id.Tenant, "ordering_key", id.Ordering, "attempts", n, "wait", wait, "error", cause)
	return nil
}

// parkFailed parks a message that failed, in a transaction of its own.
func (w *wrapped) parkFailed(
	ctx context.Context, id store.Identity, m *messaging.Message, n int, wait time.Duration, cause error,
) (became store.Entry, err error) {
	became, err = w.settle(ctx, id, func(ctx context.Context, u *uow.Unit, became store.Entry) error {
		if became == store.Early {
			return w.setAside(ctx, u.DB(), id, m)
		}
		waiting, err := w.box.table.Parked.Park(ctx, u.DB(), store.Parking{ID: id, Message: m, Attempts: n, Reason: pgsql.CleanText(cause.Error())})
		if err != nil || became == store.Behind || waiting == 0 {
			return err
		}
		u.AfterCommit(w.toldOfParked)
		return w.box.table.Keys.Stop(ctx, u.DB(), store.KeyFailed, wait, id)
	})
	if err != nil {
		return became, fmt.Errorf("inbox: park message %q, which failed with %q: %w", m.ID, cause.Error(), err)
	}
	if became == store.Fresh {
		w.settled(ctx, store.Behind)
	} else {
		w.settled(ctx, became)
	}
	return became, nil
}

// settle enters a message after its handler has ended: its work was rolled back, or was done under a lease. It calls fn unless a copy of
// the message was settled first.
func (w *wrapped) settle(ctx context.Context, id store.Identity, fn func(context.Context, *uow.Unit, store.Entry) error) (became store.Entry, err error) {
	err = w.box.store.Units.Do(ctx, func(ctx context.Context, u *uow.Unit) (err error) {
		if became, err = w.enter(ctx, u, id); err != nil || became == store.Duplicate {
			return err
		}
		if err := endLease(ctx, w.box, u, id); err != nil {
			return err
		}
		if err := w.box.table.Attempts.Forget(ctx, u.DB(), id); err != nil {
			return err
		}
		return fn(ctx, u, became)
	}, store.ReadCommitted())
	return became, err
}

// hopeless reports whether another try is pointless: the error is permanent, and does not ask for another build of the program.
func hopeless(err error) bool {
	var decode *event.DecodeError
	return !needsBuild(err) && (messaging.IsPermanent(err) || errors.As(err, &decode) || errors.Is(err, event.ErrErased))
}

// enter enters a message. For the handler of a read model it passes the gate first.
func (w *wrapped) enter(ctx context.Context, u *uow.Unit, id store.Identity) (store.Entry, error) {
	if w.of == nil {
		return w.box.table.Entries.Enter(ctx, u, id)
	}
	return w.box.table.Gates.Enter(ctx, u, id, w.of)
}

// gate prevents a reset of the read model until the end of the transaction. rebuilding reports whether live messages have to wait.
func (w *wrapped) gate(ctx context.Context, tx bun.IDB) (rebuilding bool, err error) {
	if w == nil || w.of == nil {
		return false, nil
	}
	return w.box.table.Gates.Pass(ctx, tx, w.of)
}

// setAside stores a live message until the rebuild has ended.
func (w *wrapped) setAside(ctx context.Context, tx bun.IDB, id store.Identity, m *messaging.Message) error {
	return w.box.table.Gates.SetAside(ctx, tx, id, m, w.of)
}

// noteBuild logs that messages wait for a build that knows them: once for each type and version, because such messages may be many.
func (w *wrapped) noteBuild(ctx context.Context, e *event.Envelope, cause error) {
	if w.box.first(logged{consumer: w.consumer, eventType: e.Type, version: e.SchemaVersion}) {
		w.box.store.Log.WarnContext(ctx, "oncebox: messages are parked until a build that knows their type and version is deployed, "+
			"and what is behind them waits",
			"consumer", w.consumer, "topic", e.Topic, "type", e.Type, "version", e.SchemaVersion, "limit", w.retry.DeployWait,
			"id", e.ID, "tenant", e.TenantID, "error", cause)
	}
}

// awaitBuild parks a message that this build does not know. Its tries do not count.
func (w *wrapped) awaitBuild(ctx context.Context, id store.Identity, m *messaging.Message, cause error) error {
	became, err := w.parkFailed(ctx, id, m, 0, w.retry.buildPause(0), cause)
	if err == nil && became != store.Duplicate {
		w.noteBuild(ctx, &m.Envelope, cause)
	}
	return err
}
