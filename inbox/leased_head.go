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

// lookForHead locks a message, and returns a row if it is parked where it was.
const lookForHead = `SELECT FROM {schema}.inbox_parked WHERE consumer = $1::text AND key_lock = $2::bigint AND seq = $3::bigint FOR UPDATE`

// runLeased is the rest of runHead for a handler that runs under a lease. Neither a transaction nor the lock of the key is held
// meanwhile; that the message runs once at a time rests on the lease, which outlives the ownership of the key.
func (w *wrapped) runLeased(ctx context.Context, k store.ParkedKey, h head, counted count) (ran, error) {
	more := 1
	if counted.seq == h.seq {
		more = 0
	}
	m := messaging.NewMessage(h.envelope, h.try(counted), nil)
	id := store.Identify(k.Consumer, m)
	var err error
	if id.Key, err = uuid.Parse(h.key.MessageKey); err != nil {
		return ranNothing, errors.Join(err, w.box.giveBack(ctx, k, counted, w.retry.Delay))
	}
	id.Tenant, id.Source = h.key.TenantID, h.key.Source
	l, a, err := w.ask(ctx, id, k.Lock, &h.seq, more)
	switch {
	case err != nil:
		return ranNothing, w.box.lostKey(ctx, k, counted, err)
	case a.outcome != leaseTaken:
		return ranNothing, w.box.giveBack(ctx, k, counted, a.rest)
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
		lost = errors.Is(err, ErrLeaseLost) || errors.Is(err, errOthers)
	}
	switch {
	case err == nil && l.skip:
		w.box.count(ctx, k.Consumer, outcomeSkipped)
		return became, nil
	case err == nil:
		w.box.count(ctx, k.Consumer, outcomeHandled)
		return became, nil
	}
	return l.failedHead(ctx, k, h, count{a.tried, h.seq}, err, lost)
}

// finishHead removes the message, unless somebody decided otherwise while it ran.
func (l *lease) finishHead(ctx context.Context, k store.ParkedKey, h head) (became ran, err error) {
	err = l.w.box.store.Units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		there, err := l.w.box.store.SQL.Exec(ctx, u.DB(), lookForHead, k.Consumer, k.Lock, h.seq)
		if err != nil {
			return err
		}
		if _, err := l.w.box.store.SQL.Exec(ctx, u.DB(), store.LockKey, k.Lock); err != nil {
			return err
		}
		if err := l.w.box.endLease(ctx, u, l.id); err != nil || there == 0 {
			return cmp.Or(err, errOthers)
		}
		var handled bool
		if err := l.w.box.store.SQL.QueryRow(ctx, u.DB(), enterHead, []any{k.Consumer, k.Lock, h.seq, h.parked}, &handled); err != nil {
			return err
		}
		more, err := l.w.box.removeHead(ctx, u.DB(), k, h.seq)
		if became = ranLast; more {
			became = ranMore
		}
		return errors.Join(err, l.forgetSteps(ctx, u.DB()))
	}, readCommitted())
	if err != nil {
		return ranFailed, fmt.Errorf("inbox: settle parked message %s, whose handler has ended: %w", h.key.MessageKey, err)
	}
	return became, nil
}

// failedHead decides what becomes of a parked message whose handler failed.
func (l *lease) failedHead(ctx context.Context, k store.ParkedKey, h head, tried count, cause error, lost bool) (ran, error) {
	if lost || !l.free(ctx) {
		l.w.box.count(ctx, k.Consumer, outcomeInterrupted)
		return ranNothing, errors.Join(cause, l.w.box.table.Keys.HandBack(context.WithoutCancel(ctx), k, l.w.box.cfg.PollInterval))
	}
	if ctx.Err() != nil {
		return ranNothing, l.w.box.giveBack(context.WithoutCancel(ctx), k, tried, 0)
	}
	l.w.box.count(ctx, k.Consumer, outcomeFailed)
	return ranFailed, l.w.headFailed(ctx, k, h, tried, cause)
}
