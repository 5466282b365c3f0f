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

// takeAwayHead removes the first message of a key, and has the key wait for a decision. It affects no row if another process has the key
// by now.
const takeAwayHead = `
WITH k AS (
	UPDATE {schema}.inbox_key SET state = 'DEAD', owner = NULL, due_at = 'infinity'
	WHERE consumer = $1::text AND key_lock = $2::bigint AND owner = $4::uuid RETURNING consumer, key_lock
)
DELETE FROM {schema}.inbox_parked p USING k WHERE p.consumer = k.consumer AND p.key_lock = k.key_lock AND p.seq = $3::bigint`

// giveUpHead is giveUp for the first message of a key, whose place the dead letter keeps. A message that PostgreSQL takes in no form stays
// parked, and is tried again after the longest pause.
func (w *wrapped) giveUpHead(ctx context.Context, k store.ParkedKey, h head, n int, cause error) error {
	l, holds, err := w.letterOf(k, h, n)
	if err != nil {
		return fmt.Errorf("inbox: make a dead letter of parked message %s: %w", h.key.MessageKey, err)
	}
	err = storeFirst(l, cause, func(form letter, reason error) error {
		var moved bool
		err := w.announced(ctx, form, func(a *announcement) (err error) {
			moved, err = w.moveHead(ctx, k, h, a, death{attempts: n, cause: reason, holds: holds && form.id.Lock != nil, seq: &h.seq})
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
	_, noted := w.box.noteFailure(ctx, k, h, n, wait, err)
	return errors.Join(err, noted)
}

// letterOf returns the letter of a parked message under the names with which it was parked, and whether what is behind it waits for it.
func (w *wrapped) letterOf(k store.ParkedKey, h head, n int) (l letter, holds bool, err error) {
	m := messaging.NewMessage(h.envelope, n, nil)
	l = newLetter(w.ordered(store.Identify(k.Consumer, m)), m)
	holds = l.id.Lock == any(k.Lock) && !w.continueAfterDead
	l.id.Key, err = uuid.Parse(h.key.MessageKey)
	l.id.Tenant, l.id.Source, l.id.Lock = h.key.TenantID, h.key.Source, k.Lock
	return l, holds, err
}

// moveHead stores one form in the place of the parked message. moved is false if the key is another process's by now.
func (w *wrapped) moveHead(ctx context.Context, k store.ParkedKey, h head, a *announcement, d death) (moved bool, err error) {
	err = w.box.store.Units.Do(ctx, func(ctx context.Context, u *uow.Unit) (err error) {
		if _, err := w.gate(ctx, u.DB()); err != nil {
			return err
		}
		if _, err := w.box.store.SQL.Exec(ctx, u.DB(), lookForHead, k.Consumer, k.Lock, h.seq); err != nil {
			return err
		}
		if _, err := w.box.store.SQL.Exec(ctx, u.DB(), store.LockKey, k.Lock); err != nil {
			return err
		}
		taken, err := w.box.store.SQL.Exec(ctx, u.DB(), takeAwayHead, k.Consumer, k.Lock, h.seq, w.box.store.Owner)
		if moved = taken > 0; err != nil || !moved {
			return err
		}
		if err := a.make(ctx, u, d); err != nil || d.holds {
			return err
		}
		return w.box.table.Keys.Free(ctx, u.DB(), k.Consumer, k.Lock)
	}, readCommitted())
	return moved, err
}
