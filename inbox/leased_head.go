package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
)

// runLeased is the rest of runHead for a handler that runs under a lease. Neither a transaction nor the lock of the key is held
// meanwhile; that the message runs once at a time rests on the lease, which outlives the ownership of the key.
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
	case a.outcome != leaseTaken:
		return ranNothing, w.box.table.Heads.GiveBack(ctx, k, counted, a.rest)
	}
	ctx = l.context(ctx)
	defer l.free(ctx)
	if w.retry.isDeadly(a.tried.Earlier()) {
		return ranFailed, w.giveUpHead(ctx, k, h, a.tried.N-1, errDeadly)
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
	return l.failedHead(ctx, k, h, store.Count{Attempts: a.tried, Seq: h.Seq}, err, lost)
}

// finishHead removes the message, unless somebody decided otherwise while it ran.
func (l *lease) finishHead(ctx context.Context, k store.ParkedKey, h store.Head) (became ran, err error) {
	err = l.w.box.store.Units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		there, err := l.w.box.table.Heads.Lock(ctx, u.DB(), k, h)
		if err != nil {
			return err
		}
		if err := l.w.box.table.Heads.LockKey(ctx, u.DB(), k); err != nil {
			return err
		}
		if err := l.w.box.endLease(ctx, u, l.id); err != nil || !there {
			return cmp.Or(err, store.ErrOthers)
		}
		if _, err := l.w.box.table.Heads.Enter(ctx, u.DB(), k, h); err != nil {
			return err
		}
		more, err := l.w.box.table.Heads.Remove(ctx, u.DB(), k, h.Seq)
		if became = ranLast; more {
			became = ranMore
		}
		return errors.Join(err, l.forgetSteps(ctx, u.DB()))
	}, readCommitted())
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
