package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"

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

// runHead handles the first message of a key, once.
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
func (i *Inbox) runHead(ctx context.Context, k store.ParkedKey) (ran, error) {
	var (
		counted store.Count
		h       store.Head
		w       *wrapped
		more    bool
		outcome string
	)
	if k.Doubtful {
		var err error
		if counted, err = i.table.Heads.Begin(ctx, k); err != nil {
			return ranNothing, i.lostKey(ctx, k, counted, err)
		}
	}
	timed, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := newLimit(cancel, i.cfg.HandlerTimeout)
	defer limit.stop()
	err := i.store.Units.Do(timed, func(ctx context.Context, u *uow.Unit) (err error) {
		// The unit is run again after a conflict. If that run ends at the gate, it has not tried the message that the run before took.
		h, w = store.Head{}, nil
		// Before the message and the lock of its key: all transactions take them in this order.
		if _, err = i.handlerOf(k.Consumer, "").gate(ctx, u.DB()); err != nil {
			return err
		}
		if h, err = i.table.Heads.Take(ctx, u.DB(), k); err != nil {
			return err
		}
		if w = i.handlerOf(k.Consumer, h.Envelope.Topic); w == nil || w.leased || w.retry.isDeadly(counted.Earlier()) {
			return store.ErrOthers
		}
		handled, err := i.table.Heads.Enter(ctx, u.DB(), k, h)
		if err != nil {
			return err
		}
		outcome = outcomeDuplicate
		if !handled {
			outcome = outcomeHandled
			limit.reset(w.timeout)
			m := messaging.NewMessage(h.Envelope, h.Try(counted), nil)
			skip, err := w.watched(ctx, m.Topic, func(ctx context.Context) error { return w.parked.Handle(ctx, m) })
			if err != nil {
				return err
			}
			if skip {
				outcome = outcomeSkipped
			}
		}
		more, err = i.table.Heads.Remove(ctx, u.DB(), k, h.Seq)
		return err
	}, store.ReadCommitted())
	err = explainLate(timed, err)
	switch {
	case err == nil:
		i.count(ctx, k.Consumer, outcome)
		if more {
			return ranMore, nil
		}
		return ranLast, nil
	case h.Seq == 0:
		return ranNothing, i.lostKey(ctx, k, counted, err)
	case w == nil:
		return ranFailed, i.leaveToOthers(ctx, k, counted, &h)
	case w.leased:
		return w.runLeased(ctx, k, h, counted)
	case errors.Is(err, store.ErrOthers):
		return ranFailed, w.giveUpHead(ctx, k, h, counted.N-1, errDeadly)
	case ctx.Err() != nil:
		return ranNothing, i.table.Heads.GiveBack(context.WithoutCancel(ctx), k, counted, 0)
	}
	i.count(ctx, k.Consumer, outcomeFailed)
	return ranFailed, w.headFailed(ctx, k, h, counted, err)
}

// headFailed decides what becomes of the first message of a key, whose handler failed.
func (w *wrapped) headFailed(ctx context.Context, k store.ParkedKey, h store.Head, counted store.Count, cause error) error {
	n := h.Try(counted)
	switch {
	case w.retry.waitsForBuild(h.Unknown, cause):
		return w.awaitBuildHead(ctx, k, h, counted, cause)
	case needsBuild(cause):
		return w.giveUpHead(ctx, k, h, n-1, w.retry.unbuilt(cause))
	case hopeless(cause), w.retry.isExhausted(n, h.Failing):
		return w.giveUpHead(ctx, k, h, n, cause)
	}
	return w.failHead(ctx, k, h, n, cause)
}

// lostKey hands back a key whose first message was not tried.
func (i *Inbox) lostKey(ctx context.Context, k store.ParkedKey, counted store.Count, err error) error {
	back := i.table.Heads.GiveBack(context.WithoutCancel(ctx), k, counted, i.cfg.PollInterval)
	if errors.Is(err, store.ErrOthers) || errors.Is(err, store.ErrGeneration) || errors.Is(err, sql.ErrNoRows) {
		return back
	}
	return fmt.Errorf("inbox: read a parked message of consumer %s: %w", k.Consumer, errors.Join(pgerr.Explain(err), back))
}

// leaveToOthers hands back a key whose first message has a topic that this process has no handler for; the message before it had another
// topic. From now on the key is listed under the new topic, so this process does not take it. A message without topic cannot be listed so:
// its key is taken again after a pause.
func (i *Inbox) leaveToOthers(ctx context.Context, k store.ParkedKey, counted store.Count, h *store.Head) error {
	if h.Envelope.Topic != "" {
		return i.table.Heads.GiveBack(ctx, k, counted, 0)
	}
	return i.table.Heads.GiveBack(ctx, k, counted, i.cfg.Retry.Delay)
}

// loud is the number of the try whose failure is logged as an error instead of a warning. By then the pauses are minutes long.
const loud = 10

func (w *wrapped) failHead(ctx context.Context, k store.ParkedKey, h store.Head, n int, cause error) error {
	wait := w.pause(n, cause)
	if noted, err := w.box.table.Heads.Fail(ctx, k, h, n, wait, cause, needsBuild(cause)); err != nil || !noted {
		return err
	}
	level, said := slog.LevelWarn, "oncebox: parked message failed, it is tried again after a pause"
	if n == loud {
		level, said = slog.LevelError, "oncebox: a message fails again and again, and what is behind it waits; it is tried until it is given up"
	}
	w.box.store.Log.Log(ctx, level, said, "consumer", k.Consumer, "topic", h.Envelope.Topic, "type", h.Envelope.Type,
		"id", h.Envelope.ID, "tenant", h.Envelope.TenantID, "ordering_key", h.Envelope.OrderingKey(), "attempts", n, "wait", wait, "error", cause)
	return nil
}

// awaitBuildHead is awaitBuild for a parked message.
func (w *wrapped) awaitBuildHead(ctx context.Context, k store.ParkedKey, h store.Head, counted store.Count, cause error) error {
	w.noteBuild(ctx, &h.Envelope, cause)
	_, err := w.box.table.Heads.Fail(ctx, k, h, h.Try(counted)-1, w.retry.buildPause(h.Unknown), cause, true)
	return err
}
