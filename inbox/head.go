package inbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
)

// ran is the result of a try of a key's first message.
type ran int

const (
	ranLast    ran = iota // it was handled, and nothing is behind it
	ranMore               // it was handled, something is behind it
	ranFailed             // it was not handled, and the key was handed back
	ranNothing            // another process has the key
)

// head is the first message of a key that does not flow, while this process tries it.
type head struct {
	box     *Inbox
	key     store.ParkedKey
	counted store.Count // its try, if that was counted before the message was read
	row     store.Head  // the message; Seq 0: it was not read
	w       *wrapped    // its handler; nil: this process has none
}

// run handles the message, once.
//
// Two things make it once: the row of the message is locked while the handler runs, and its removal commits with the handler's work. It
// does not matter which process owns the key. A process that was suspended until its ownership ended finds the row locked or gone, or reads
// that it owns nothing.
//
// The lock of the key is taken only after the handler has ended. Until then messages can be stored behind this one, so a slow handler holds
// up no publisher and no receiver of its key. This is safe because the key does not flow: a unit that stores a message under the lock sees
// that, and commits at once. No unit that runs another handler holds the lock, see handlePart. Only the release of the key needs the lock.
//
// All transactions lock the row of the message first, then the key, then the row of the key, so they cannot deadlock. The exception is a
// copy that arrives after the entry of its message has expired, while the message runs: the copy has the lock and waits for the entry.
// PostgreSQL ends that deadlock, and the message or its copy is tried again.
func (h *head) run(ctx context.Context) (ran, error) {
	// Doubtful: an earlier process may have died in the middle of this message. So its try is counted and committed before the handler runs.
	if h.key.Doubtful {
		var err error
		if h.counted, err = h.box.table.Heads.Begin(ctx, h.key); err != nil {
			return ranNothing, h.notTried(ctx, err)
		}
	}
	timed, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := newLimit(cancel, h.box.cfg.HandlerTimeout)
	defer limit.stop()
	var (
		became  ran
		outcome string
	)
	err := h.box.store.Units.Do(timed, func(ctx context.Context, u *uow.Unit) (err error) {
		became, outcome, err = h.handle(ctx, u, limit)
		return err
	}, store.ReadCommitted())
	err = explainLate(timed, err)
	switch {
	// The cases are in this order because the earlier ones say that no handler of this process has failed.
	case err == nil:
		h.box.count(ctx, h.key.Consumer, outcome)
		return became, nil
	case h.row.Seq == 0:
		return ranNothing, h.notTried(ctx, err)
	case h.w == nil:
		return ranFailed, h.leaveToOthers(ctx)
	case h.w.of.leased:
		return h.runLeased(ctx)
	case errors.Is(err, store.ErrOthers):
		return ranFailed, h.w.letters.giveUpHead(ctx, h.key, h.row, h.counted.N-1, errDeadly)
	case ctx.Err() != nil:
		return ranNothing, h.giveBack(ctx, h.counted, 0)
	}
	h.box.count(ctx, h.key.Consumer, outcomeFailed)
	return ranFailed, h.failed(ctx, h.counted, err)
}

// handle reads the message, calls its handler and removes the message, in the unit u. It returns store.ErrOthers if the message is not for a
// handler in this unit.
// h.row and h.w are results too: run decides by them what to do after an error.
func (h *head) handle(ctx context.Context, u *uow.Unit, limit *limit) (became ran, outcome string, err error) {
	// The unit is run again after a conflict. If that run ends at the gate, it has not tried the message that the run before took.
	h.row, h.w = store.Head{}, nil
	// Before the message and the lock of its key: all transactions take them in this order.
	if w := h.box.handlerOf(h.key.Consumer, ""); w != nil {
		if _, err = w.of.gate(ctx, u.DB()); err != nil {
			return ranNothing, "", err
		}
	}
	if h.row, err = h.box.table.Heads.Take(ctx, u.DB(), h.key); err != nil {
		return ranNothing, "", err
	}
	h.w = h.box.handlerOf(h.key.Consumer, h.row.Envelope.Topic)
	if h.w == nil || h.w.of.leased || h.w.of.retry.isDeadly(h.counted.Earlier()) {
		return ranNothing, "", store.ErrOthers
	}
	// A copy of the message may have been handled while this one was parked. Then there is nothing to do but to remove it.
	handled, err := h.box.table.Heads.Enter(ctx, u.DB(), h.key, h.row)
	if err != nil {
		return ranNothing, "", err
	}
	outcome = outcomeDuplicate
	if !handled {
		outcome = outcomeHandled
		limit.reset(h.w.of.timeout)
		m := messaging.NewMessage(h.row.Envelope, h.row.Try(h.counted), nil)
		skip, err := h.w.of.watched(ctx, m.Topic, func(ctx context.Context) error { return h.w.parked.Handle(ctx, m) })
		if err != nil {
			return ranNothing, "", err
		}
		if skip {
			outcome = outcomeSkipped
		}
	}
	became, err = h.remove(ctx, u)
	return became, outcome, err
}

// remove removes the message and, if nothing is behind it, lets its key flow. It commits with the handler's work, so a message is never gone without its
// effect.
func (h *head) remove(ctx context.Context, u *uow.Unit) (ran, error) {
	more, err := h.box.table.Heads.Remove(ctx, u.DB(), h.key, h.row.Seq)
	if more {
		return ranMore, err
	}
	return ranLast, err
}

// runLeased is the rest of run for a handler that runs under a lease. Neither a transaction nor the lock of the key is held meanwhile. The
// lease alone keeps other processes from running the message at the same time, even after this process has lost the key.
func (h *head) runLeased(ctx context.Context) (ran, error) {
	more := 1
	if h.counted.Seq == h.row.Seq {
		more = 0
	}
	m := messaging.NewMessage(h.row.Envelope, h.row.Try(h.counted), nil)
	id := store.Identify(h.key.Consumer, m)
	var err error
	if id.Key, err = uuid.Parse(h.row.Key.MessageKey); err != nil {
		return ranNothing, errors.Join(err, h.box.table.Heads.GiveBack(ctx, h.key, h.counted, h.w.of.retry.Delay))
	}
	id.Tenant, id.Source = h.row.Key.TenantID, h.row.Key.Source
	l, a, err := askLease(ctx, h.w.of, id, h.key.Lock, &h.row.Seq, more)
	switch {
	case err != nil:
		return ranNothing, h.notTried(ctx, err)
	// The key is given back for the rest of the other lease, at most PollInterval, so this process does not ask again and again.
	case a.Outcome != store.LeaseTaken:
		return ranNothing, h.box.table.Heads.GiveBack(ctx, h.key, h.counted, a.Rest)
	}
	ctx = l.context(ctx)
	defer l.free(ctx)
	if h.w.of.retry.isDeadly(a.Tried.Earlier()) {
		return ranFailed, h.w.letters.giveUpHead(ctx, h.key, h.row, a.Tried.N-1, errDeadly)
	}
	err, lost := l.run(ctx, h.w.parked, m)
	became := ranLast
	if err == nil {
		became, err = h.finish(ctx, l)
		lost = errors.Is(err, ErrLeaseLost) || errors.Is(err, store.ErrOthers)
	}
	tried := store.Count{Attempts: a.Tried, Seq: h.row.Seq}
	switch {
	case err == nil && l.skip:
		h.box.count(ctx, h.key.Consumer, outcomeSkipped)
		return became, nil
	case err == nil:
		h.box.count(ctx, h.key.Consumer, outcomeHandled)
		return became, nil
	case lost || !l.free(ctx):
		h.box.count(ctx, h.key.Consumer, outcomeInterrupted)
		return ranNothing, errors.Join(err, h.box.table.Keys.HandBack(context.WithoutCancel(ctx), h.key, h.box.cfg.PollInterval))
	case ctx.Err() != nil:
		return ranNothing, h.giveBack(ctx, tried, 0)
	}
	h.box.count(ctx, h.key.Consumer, outcomeFailed)
	return ranFailed, h.failed(ctx, tried, err)
}

// finish removes a message that was handled under a lease, unless an operator or another process has removed it meanwhile.
func (h *head) finish(ctx context.Context, l *lease) (became ran, err error) {
	err = h.box.store.Units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		there, err := h.box.table.Heads.Lock(ctx, u.DB(), h.key, h.row)
		if err != nil {
			return err
		}
		if err := h.box.table.Heads.LockKey(ctx, u.DB(), h.key); err != nil {
			return err
		}
		if err := endLease(ctx, h.box, u, l.id); err != nil || !there {
			return cmp.Or(err, store.ErrOthers)
		}
		if _, err := h.box.table.Heads.Enter(ctx, u.DB(), h.key, h.row); err != nil {
			return err
		}
		became, err = h.remove(ctx, u)
		return errors.Join(err, h.box.table.Steps.Forget(ctx, u.DB(), l.id))
	}, store.ReadCommitted())
	if err != nil {
		return ranFailed, fmt.Errorf("inbox: settle parked message %s, whose handler has ended: %w", h.row.Key.MessageKey, err)
	}
	return became, nil
}

// loud is the number of the try whose failure is logged as an error instead of a warning. By then the pauses are minutes long.
const loud = 10

// failed decides what becomes of the message, whose handler failed: a later try, or none (it makes a dead letter).
func (h *head) failed(ctx context.Context, tried store.Count, cause error) error {
	n, needs := h.row.Try(tried), needsBuild(cause)
	switch h.w.of.retry.decide(failure{cause: cause, tries: n, failing: h.row.Failing, unknown: h.row.Unknown}) {
	case awaitBuild:
		h.w.of.noteBuild(ctx, &h.row.Envelope, cause)
		_, err := h.box.table.Heads.Fail(ctx, h.key, h.row, n-1, h.w.of.retry.buildPause(h.row.Unknown), cause, needs)
		return err
	case giveUp:
		// Tries that failed only because this build is too old would otherwise count against MaxAttempts.
		if needs { // tries of a build that does not know the message are not counted
			n, cause = n-1, h.w.of.retry.unbuilt(cause)
		}
		return h.w.letters.giveUpHead(ctx, h.key, h.row, n, cause)
	case tryHere, tryLater:
	}
	wait := h.w.of.pause(n, cause)
	if noted, err := h.box.table.Heads.Fail(ctx, h.key, h.row, n, wait, cause, needs); err != nil || !noted {
		return err
	}
	level, said := slog.LevelWarn, "oncebox: parked message failed, it is tried again after a pause"
	if n == loud {
		level, said = slog.LevelError, "oncebox: a message fails again and again, and what is behind it waits; it is tried until it is given up"
	}
	e := &h.row.Envelope
	h.box.store.Log.Log(ctx, level, said, "consumer", h.key.Consumer, "topic", e.Topic, "type", e.Type,
		"id", e.ID, "tenant", e.TenantID, "ordering_key", e.OrderingKey(), "attempts", n, "wait", wait, "error", cause)
	return nil
}

// giveBack hands back the key after a try that does not count. It does so even if ctx has ended, or the key would wait for the end of its
// ownership.
func (h *head) giveBack(ctx context.Context, tried store.Count, wait time.Duration) error {
	return h.box.table.Heads.GiveBack(context.WithoutCancel(ctx), h.key, tried, wait)
}

// notTried hands back the key. Its first message was not tried because of err.
func (h *head) notTried(ctx context.Context, err error) error {
	back := h.giveBack(ctx, h.counted, h.box.cfg.PollInterval)
	if errors.Is(err, store.ErrOthers) || errors.Is(err, store.ErrGeneration) || errors.Is(err, sql.ErrNoRows) {
		return back
	}
	return fmt.Errorf("inbox: read a parked message of consumer %s: %w", h.key.Consumer, errors.Join(pgerr.Explain(err), back))
}

// leaveToOthers hands back a key whose first message has a topic that this process has no handler for; the message before it had another
// topic. From now on the key is listed under the new topic, so this process does not take it. A message without topic cannot be listed so:
// its key is taken again after a pause.
func (h *head) leaveToOthers(ctx context.Context) error {
	if h.row.Envelope.Topic != "" {
		return h.box.table.Heads.GiveBack(ctx, h.key, h.counted, 0)
	}
	return h.box.table.Heads.GiveBack(ctx, h.key, h.counted, h.box.cfg.Retry.Delay)
}
