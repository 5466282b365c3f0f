package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/inbox/internal/store"
	leases "github.com/oncebox/oncebox/internal/lease"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/skipped"
	"github.com/oncebox/oncebox/internal/steps"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
)

// errWithin: the lease has to be committed before the handler runs, which is impossible in a transaction of the caller.
var errWithin = errors.New("inbox: a handler of WrapLeased runs without a transaction and cannot be called within a unit of work")

// handleLeased is handle for a handler that runs under a lease. The message is entered after the handler has ended.
func (w *wrapped) handleLeased(ctx context.Context, id store.Identity, m *messaging.Message) error {
	if _, within := uow.FromContext(ctx); within {
		return errWithin
	}
	for {
		l, a, err := w.ask(ctx, id, id.KeyLock(), nil, 1)
		switch {
		case err != nil:
			return err
		case a.Outcome == store.LeaseHeld:
			// It is not parked: the message that runs may fail or come again, and would then be parked behind this one.
			w.box.count(ctx, w.consumer, outcomeLeased)
			return messaging.Postpone(a.Rest, ErrLeased)
		case a.Outcome == store.LeaseTaken:
			return l.handle(ctx, m, a.Tried)
		case a.Outcome == store.LeaseBehind && id.Lock != nil:
			if err := w.storeBehind(ctx, id, m); !errors.Is(err, errFlows) {
				return err
			}
		default: // it was settled before; behind, without order, means the same: its key holds no other message
			w.box.count(ctx, w.consumer, outcomeDuplicate)
			return nil
		}
	}
}

// errFlows rolls back a unit that was to park a message behind others, if these have been handled meanwhile.
var errFlows = errors.New("inbox: the key flows again")

// storeBehind parks a message behind the messages of its key that wait already. It returns errFlows if none waits any more.
func (w *wrapped) storeBehind(ctx context.Context, id store.Identity, m *messaging.Message) error {
	var became store.Entry
	err := w.box.store.Units.Do(ctx, func(ctx context.Context, u *uow.Unit) (err error) {
		became, err = w.enter(ctx, u, id)
		switch {
		case err != nil || became == store.Duplicate:
			return err
		case became == store.Fresh:
			return errFlows
		}
		return w.store(ctx, u, store.Parking{ID: id, Message: m}, became)
	}, store.ReadCommitted())
	if err == nil {
		w.settled(ctx, became)
	}
	return err
}

// handle runs the message and settles it.
func (l *lease) handle(ctx context.Context, m *messaging.Message, tried store.Attempts) error {
	ctx = l.context(ctx)
	defer l.free(ctx)
	counted := *m
	counted.Attempt = tried.N // m.Attempt also counts the times that the message waited for the lease
	if l.w.retry.isDeadly(tried.Earlier()) {
		counted.Attempt--
		return l.w.giveUp(ctx, l.id, &counted, tried.N-1, errDeadly)
	}
	err, lost := l.run(ctx, l.w.next, m)
	if err == nil {
		err = l.finish(ctx)
		lost = errors.Is(err, ErrLeaseLost)
	}
	switch {
	case err == nil && l.skip:
		l.w.settled(ctx, store.Passed)
		return nil
	case err == nil:
		l.w.settled(ctx, store.Fresh)
		return nil
	case lost:
		// The result of the handler does not count: another process has the message now and decides.
		l.w.box.count(ctx, l.w.consumer, outcomeInterrupted)
		return fmt.Errorf("%w (its handler ended with: %w)", ErrLeaseLost, err)
	case ctx.Err() != nil:
		l.w.box.table.Attempts.TakeBack(ctx, l.id, tried)
		l.w.box.count(ctx, l.w.consumer, outcomeInterrupted)
		return err
	}
	err = l.w.failed(ctx, l.id, &counted, tried, err)
	if store.IsUnstorable(err) && !messaging.IsLeft(err) {
		// The lease is still held here, so no other process handles the message meanwhile.
		return l.w.giveUp(ctx, l.id, &counted, tried.N, err)
	}
	return err
}

// finish enters the message and frees the lease, in one transaction.
func (l *lease) finish(ctx context.Context) error {
	_, err := l.w.settle(ctx, l.id, func(ctx context.Context, u *uow.Unit, _ store.Entry) error {
		return l.w.box.table.Steps.Forget(ctx, u.DB(), l.id)
	})
	if err != nil {
		return fmt.Errorf("inbox: settle message %s, whose handler has ended: %w", l.id.Key, err)
	}
	return nil
}

// runLeased is the rest of runHead for a handler that runs under a lease. Neither a transaction nor the lock of the key is held meanwhile.
// The lease alone keeps other processes from running the message at the same time, even after this process has lost the key.
func (w *wrapped) runLeased(ctx context.Context, k store.ParkedKey, h store.Head, counted store.Count) (ran, error) {
	more := 1
	if counted.Seq == h.Seq {
		more = 0
	}
	m := messaging.NewMessage(h.Envelope, h.Try(counted), nil)
	id := store.Identify(k.Consumer, m)
	var err error
	if id.Key, err = uuid.Parse(h.Key.MessageKey); err != nil {
		return ranNothing, errors.Join(err, w.box.table.Heads.GiveBack(ctx, k, counted, w.retry.Delay))
	}
	id.Tenant, id.Source = h.Key.TenantID, h.Key.Source
	l, a, err := w.ask(ctx, id, k.Lock, &h.Seq, more)
	switch {
	case err != nil:
		return ranNothing, w.box.lostKey(ctx, k, counted, err)
	case a.Outcome != store.LeaseTaken:
		return ranNothing, w.box.table.Heads.GiveBack(ctx, k, counted, a.Rest)
	}
	ctx = l.context(ctx)
	defer l.free(ctx)
	if w.retry.isDeadly(a.Tried.Earlier()) {
		return ranFailed, w.giveUpHead(ctx, k, h, a.Tried.N-1, errDeadly)
	}
	err, lost := l.run(ctx, l.w.parked, m)
	became := ranLast
	if err == nil {
		became, err = l.finishHead(ctx, k, h)
		lost = errors.Is(err, ErrLeaseLost) || errors.Is(err, store.ErrOthers)
	}
	switch {
	case err == nil && l.skip:
		w.box.count(ctx, k.Consumer, outcomeSkipped)
		return became, nil
	case err == nil:
		w.box.count(ctx, k.Consumer, outcomeHandled)
		return became, nil
	}
	return l.failedHead(ctx, k, h, store.Count{Attempts: a.Tried, Seq: h.Seq}, err, lost)
}

// finishHead removes a parked message that was handled, unless an operator or another process has removed it while it ran.
func (l *lease) finishHead(ctx context.Context, k store.ParkedKey, h store.Head) (became ran, err error) {
	err = l.w.box.store.Units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		there, err := l.w.box.table.Heads.Lock(ctx, u.DB(), k, h)
		if err != nil {
			return err
		}
		if err := l.w.box.table.Heads.LockKey(ctx, u.DB(), k); err != nil {
			return err
		}
		if err := endLease(ctx, l.w.box, u, l.id); err != nil || !there {
			return cmp.Or(err, store.ErrOthers)
		}
		if _, err := l.w.box.table.Heads.Enter(ctx, u.DB(), k, h); err != nil {
			return err
		}
		more, err := l.w.box.table.Heads.Remove(ctx, u.DB(), k, h.Seq)
		if became = ranLast; more {
			became = ranMore
		}
		return errors.Join(err, l.w.box.table.Steps.Forget(ctx, u.DB(), l.id))
	}, store.ReadCommitted())
	if err != nil {
		return ranFailed, fmt.Errorf("inbox: settle parked message %s, whose handler has ended: %w", h.Key.MessageKey, err)
	}
	return became, nil
}

// failedHead decides what becomes of a parked message whose handler failed.
func (l *lease) failedHead(ctx context.Context, k store.ParkedKey, h store.Head, tried store.Count, cause error, lost bool) (ran, error) {
	if lost || !l.free(ctx) {
		l.w.box.count(ctx, k.Consumer, outcomeInterrupted)
		return ranNothing, errors.Join(cause, l.w.box.table.Keys.HandBack(context.WithoutCancel(ctx), k, l.w.box.cfg.PollInterval))
	}
	if ctx.Err() != nil {
		return ranNothing, l.w.box.table.Heads.GiveBack(context.WithoutCancel(ctx), k, tried, 0)
	}
	l.w.box.count(ctx, k.Consumer, outcomeFailed)
	return ranFailed, l.w.headFailed(ctx, k, h, tried, cause)
}

var (
	// ErrLeased means that another process has the lease of the message's key. It does not count as a failure: the message waits.
	ErrLeased = errors.New("inbox: another process handles a message of this key")

	// ErrLeaseLost means that a handler was silent for so long that another process may have taken over its message. The context of the
	// handler is cancelled with this cause, and its steps return it from then on.
	ErrLeaseLost = errors.New("inbox: the lease of the message is lost: another process may have taken it over")
)

// minRest is the shortest wait for a lease.
const minRest = 50 * time.Millisecond

// freeTimeout bounds the attempt to free a lease early. A lease that is not freed ends by itself.
const freeTimeout = 5 * time.Second

// lease is the right to run one message, once. The steps of the message are written under it.
type lease struct {
	w     *wrapped // whose handler it is
	id    store.Identity
	name  store.Lease
	since time.Time // when it was asked for
	freed bool
	held  *leases.Lease // nil before the handler runs
	skip  bool          // the message was skipped

	steps steps.Set
}

// ask asks for the lease of a message. seq is the place of a parked message, nil for a message from the broker. more is 1 if the try has to
// be counted, 0 if it was counted before.
func (w *wrapped) ask(ctx context.Context, id store.Identity, lock int64, seq *int64, more int) (*lease, store.Asked, error) {
	l := &lease{w: w, id: id, name: store.Lease{Consumer: id.Consumer, Lock: lock, Token: uuid.NewString()}, since: time.Now()}
	a, err := w.box.table.Leases.Take(ctx, id, l.name, seq, more)
	if err != nil {
		return nil, a, err
	}
	// The owner may free the lease long before its time is over, so the wait is PollInterval at most. It is at least minRest, so that a
	// lease that has just ended is not asked for in a busy loop.
	a.Rest = min(max(a.Rest, minRest), w.box.cfg.PollInterval)
	return l, a, nil
}

// run calls the handler and renews the lease meanwhile. A panic becomes an error.
func (l *lease) run(ctx context.Context, h messaging.Handler, m *messaging.Message) (err error, lost bool) { //nolint:revive // lost explains err
	l.held = leases.New(&leases.Terms{
		TTL: l.w.box.cfg.LeaseTTL, Lost: ErrLeaseLost,
		Renew: func(ctx context.Context) (ours bool, err error) { return l.w.box.table.Leases.Renew(ctx, l.name) },
		Log:   l.w.box.store.Log, What: "a message", Attrs: []any{"consumer", l.w.consumer, "message_key", l.id.Key.String()},
	}, l.since)
	timed, cancel := l.w.timed(ctx)
	defer cancel()
	lost, err = l.held.Hold(timed, func(ctx context.Context) error {
		if pool, ok := l.w.box.store.DB(ctx).(*bun.DB); ok {
			ctx = pgsql.UnderLease(ctx, pool.DB)
		}
		ctx, mark := skipped.With(ctx)
		err := cmp.Or(call(ctx, h, m), tooLate(ctx))
		l.skip = err == nil && mark.IsSet()
		return err
	})
	return explainLate(timed, err), lost
}

// free gives the lease back early. It returns false if another process has taken the lease, or if the database did not answer.
func (l *lease) free(ctx context.Context) bool {
	if l.freed {
		return true
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), freeTimeout)
	defer cancel()
	ours, err := l.w.box.table.Leases.Free(ctx, l.w.box.store.DB(ctx), l.name)
	l.freed = err == nil && ours
	return l.freed
}

type leaseKey struct{}

// context returns ctx with the lease, where Step, StepInUnit and endLease find it.
func (l *lease) context(ctx context.Context) context.Context {
	return context.WithValue(ctx, leaseKey{}, l)
}

// endLease is part of every transaction that settles a message. It frees the lease, and fails if the handler has lost it. For a handler
// without a lease it does nothing.
func endLease(ctx context.Context, box *Inbox, u *uow.Unit, id store.Identity) error {
	l, ok := ctx.Value(leaseKey{}).(*lease)
	if !ok || l.w.box != box || l.id != id {
		return nil
	}
	ours, err := l.w.box.table.Leases.Free(ctx, u.DB(), l.name)
	if err != nil {
		return fmt.Errorf("inbox: free the lease of message %s: %w", id.Key, err)
	}
	if !ours {
		return ErrLeaseLost
	}
	u.AfterCommit(func(context.Context) { l.freed = true })
	return nil
}
