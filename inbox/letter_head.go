package inbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
)

// giveUpHead is giveUp for the first message of a key, whose place the dead letter keeps. A message that PostgreSQL takes in no form stays
// parked, and is tried again after the longest pause.
func (w *wrapped) giveUpHead(ctx context.Context, k store.ParkedKey, h store.Head, n int, cause error) error {
	l, holds, err := w.letterOf(k, h, n)
	if err != nil {
		return fmt.Errorf("inbox: make a dead letter of parked message %s: %w", h.Key.MessageKey, err)
	}
	err = storeFirst(l, cause, func(form letter, reason error) error {
		var moved bool
		err := w.announced(ctx, form, func(a *announcement) (err error) {
			moved, err = w.moveHead(ctx, k, h, a, death{attempts: n, cause: reason, holds: holds && form.id.Lock != nil, seq: &h.Seq})
			return err
		})
		if err == nil && moved {
			w.gaveUp(ctx, form, reason)
		}
		return err
	})
	if !messaging.IsLeft(err) {
		return err
	}
	wait := w.retry.longest()
	_, noted := w.box.table.Heads.Fail(ctx, k, h, n, wait, err, needsBuild(err))
	return errors.Join(err, noted)
}

// letterOf returns the letter of a parked message under the names with which it was parked, and whether what is behind it waits for it.
func (w *wrapped) letterOf(k store.ParkedKey, h store.Head, n int) (l letter, holds bool, err error) {
	m := messaging.NewMessage(h.Envelope, n, nil)
	l = newLetter(w.ordered(store.Identify(k.Consumer, m)), m)
	holds = l.id.Lock == any(k.Lock) && !w.continueAfterDead
	l.id.Key, err = uuid.Parse(h.Key.MessageKey)
	l.id.Tenant, l.id.Source, l.id.Lock = h.Key.TenantID, h.Key.Source, k.Lock
	return l, holds, err
}

// moveHead stores one form in the place of the parked message. moved is false if the key is another process's by now.
func (w *wrapped) moveHead(ctx context.Context, k store.ParkedKey, h store.Head, a *announcement, d death) (moved bool, err error) {
	err = w.box.store.Units.Do(ctx, func(ctx context.Context, u *uow.Unit) (err error) {
		if _, err := w.gate(ctx, u.DB()); err != nil {
			return err
		}
		if _, err := w.box.table.Heads.Lock(ctx, u.DB(), k, h); err != nil {
			return err
		}
		if err := w.box.table.Heads.LockKey(ctx, u.DB(), k); err != nil {
			return err
		}
		if moved, err = w.box.table.Heads.TakeAway(ctx, u.DB(), k, h); err != nil || !moved {
			return err
		}
		if err := a.make(ctx, u, d); err != nil || d.holds {
			return err
		}
		return w.box.table.Keys.Free(ctx, u.DB(), k.Consumer, k.Lock)
	}, readCommitted())
	return moved, err
}
