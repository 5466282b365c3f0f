package inbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/oncebox/oncebox/inbox/internal/store"
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
		l, a, err := askLease(ctx, w.of, id, id.KeyLock(), nil, 1)
		switch {
		case err != nil:
			return err
		case a.Outcome == store.LeaseHeld:
			// It is not parked: the message that runs may fail or come again, and would then be parked behind this one.
			w.of.box.count(ctx, w.of.name, outcomeLeased)
			return messaging.Postpone(a.Rest, ErrLeased)
		case a.Outcome == store.LeaseTaken:
			return w.underLease(ctx, l, m, a.Tried)
		case a.Outcome == store.LeaseBehind && id.Lock != nil:
			if err := w.storeBehind(ctx, id, m); !errors.Is(err, errFlows) {
				return err
			}
		default: // it was settled before; behind, without order, means the same: its key holds no other message
			w.of.box.count(ctx, w.of.name, outcomeDuplicate)
			return nil
		}
	}
}

// errFlows rolls back a unit that was to park a message behind others, if these have been handled meanwhile.
var errFlows = errors.New("inbox: the key flows again")

// storeBehind parks a message behind the messages of its key that wait already. It returns errFlows if none waits any more.
func (w *wrapped) storeBehind(ctx context.Context, id store.Identity, m *messaging.Message) error {
	var became store.Entry
	err := w.of.box.store.Units.Do(ctx, func(ctx context.Context, u *uow.Unit) (err error) {
		became, err = w.of.enter(ctx, u, id)
		switch {
		case err != nil || became == store.Duplicate:
			return err
		case became == store.Fresh:
			return errFlows
		case became == store.Behind:
			return w.of.park(ctx, u, []store.Parking{{ID: id, Message: m}})
		default:
			return w.of.park(ctx, u, []store.Parking{{ID: id, Message: m}}, id)
		}
	}, store.ReadCommitted())
	if err == nil {
		w.of.settled(ctx, became)
	}
	return err
}

// underLease runs the message under its lease, and settles it.
func (w *wrapped) underLease(ctx context.Context, l *lease, m *messaging.Message, tried store.Attempts) error {
	ctx = l.context(ctx)
	defer l.free(ctx)
	counted := *m
	counted.Attempt = tried.N // m.Attempt also counts the times that the message waited for the lease
	if w.of.retry.isDeadly(tried.Earlier()) {
		counted.Attempt--
		return w.letters.giveUp(ctx, l.id, &counted, tried.N-1, errDeadly)
	}
	err, lost := l.run(ctx, w.next, m)
	if err == nil {
		err = w.finish(ctx, l.id)
		lost = errors.Is(err, ErrLeaseLost)
	}
	switch {
	case err == nil && l.skip:
		w.of.settled(ctx, store.Passed)
		return nil
	case err == nil:
		w.of.settled(ctx, store.Fresh)
		return nil
	case lost:
		// The result of the handler does not count: another process has the message now and decides.
		w.of.box.count(ctx, w.of.name, outcomeInterrupted)
		return fmt.Errorf("%w (its handler ended with: %w)", ErrLeaseLost, err)
	case ctx.Err() != nil:
		w.of.box.table.Attempts.TakeBack(ctx, l.id, tried)
		w.of.box.count(ctx, w.of.name, outcomeInterrupted)
		return err
	}
	err = w.failed(ctx, l.id, &counted, tried, err)
	if store.IsUnstorable(err) && !messaging.IsLeft(err) {
		// The lease is still held here, so no other process handles the message meanwhile.
		return w.letters.giveUp(ctx, l.id, &counted, tried.N, err)
	}
	return err
}

// finish enters a message whose handler has ended, and frees the lease, in one transaction.
func (w *wrapped) finish(ctx context.Context, id store.Identity) error {
	_, err := w.of.settle(ctx, id, func(ctx context.Context, u *uow.Unit, _ store.Entry) error {
		return w.of.box.table.Steps.Forget(ctx, u.DB(), id)
	})
	if err != nil {
		return fmt.Errorf("inbox: settle message %s, whose handler has ended: %w", id.Key, err)
	}
	return nil
}
