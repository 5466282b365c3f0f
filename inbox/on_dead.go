package inbox

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/uow"
)

// announcement is one dead letter and the call of Config.OnDead for it. The unit that makes the letter may run several times.
type announcement struct {
	w      *wrapped
	l      letter
	hook   func(ctx context.Context, u *uow.Unit, d DeadLetter) error // nil: nothing is called
	called bool
	failed error // of the last call
	made   bool  // the last run of the unit has made a dead letter
}

// announced runs write, which makes a dead letter of l by calling [announcement.make], which also calls Config.OnDead.
//
// If the hook fails, only its own work is rolled back. If the whole unit fails after a call of the hook, because the hook has broken the
// connection or has added an event that cannot be stored, write is run once more without the hook.
func (w *wrapped) announced(ctx context.Context, l letter, write func(a *announcement) error) error {
	a := &announcement{w: w, l: l, hook: w.box.cfg.OnDead}
	if l.announces {
		a.hook = nil
	}
	err := write(a)
	if err != nil && a.called {
		a.hook, a.failed, a.made = nil, errors.Join(a.failed, err), false
		err = write(a)
	}
	if err == nil && a.made && a.failed != nil {
		w.box.silent.Add(ctx, 1, ofConsumer(w.consumer))
		w.box.store.Log.ErrorContext(ctx, "oncebox: a dead letter is not announced: Config.OnDead failed", "consumer", w.consumer, "topic", l.m.Topic,
			"type", l.m.Type, "id", l.m.ID, "tenant", l.id.Tenant, "ordering_key", l.id.Ordering, "message_key", l.id.Key.String(), "error", a.failed)
	}
	return err
}

// make stores the dead letter and calls the hook. The hook is not called for a letter that was stored before: its message came again after
// its entry had expired, and it was announced the first time.
func (a *announcement) make(ctx context.Context, u *uow.Unit, d death) error {
	a.made = false
	var ref operator.MessageRef
	there := false
	if a.hook != nil {
		ref = operator.MessageRef{MessageKey: a.l.id.Key.String(), Consumer: a.l.id.Consumer, TenantID: a.l.id.Tenant, Source: a.l.id.Source}
		_, err := a.w.box.dead.Show(ctx, u.DB(), deadOf(ref))
		if there = err == nil; err != nil && !errors.Is(err, operator.ErrNotDead) {
			return err
		}
	}
	if err := a.w.box.storeDead(ctx, u.DB(), a.l, d); err != nil {
		return err
	}
	a.made = true
	if a.hook == nil || there {
		return nil
	}
	letter, err := a.w.box.dead.Show(ctx, u.DB(), deadOf(ref))
	if err != nil {
		return err
	}
	a.called = true
	a.failed = a.call(ctx, letter)
	return nil
}

// call calls the hook behind a savepoint.
func (a *announcement) call(ctx context.Context, d DeadLetter) (err error) {
	ctx, cancel := context.WithTimeout(ctx, a.w.box.cfg.OnDeadTimeout)
	defer cancel()
	defer func() {
		if v := recover(); v != nil { // the unit has rolled back to the savepoint
			err = fmt.Errorf("inbox: Config.OnDead panicked: %v\n%s", v, debug.Stack())
		}
	}()
	ctx = event.WithTenant(messaging.NewContext(ctx, a.l.m), a.l.id.Tenant) // the tenant of the id is always valid
	ctx = event.WithMetadata(ctx, event.Metadata{event.DeadLetterOf: a.l.id.Key.String()})
	return a.w.box.store.Units.Do(ctx, func(ctx context.Context, u *uow.Unit) error { return a.hook(ctx, u, d) })
}
