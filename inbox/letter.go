package inbox

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/uow"
)

// keptPayload is how many bytes of the payload a reduced dead letter keeps.
const keptPayload = 64 << 10

// letter is a message that becomes a dead letter.
type letter struct {
	id      store.Identity
	m       *messaging.Message
	reduced bool // m lacks parts of the message that came

	// announces says that the message itself announces a dead letter. Config.OnDead is not called for it, or announcements could go on
	// without end.
	announces bool
}

func newLetter(id store.Identity, m *messaging.Message) letter {
	return letter{id: id, m: m, announces: m.Metadata[event.DeadLetterOf] != ""}
}

// death holds the fields of a dead letter that do not belong to its message.
type death struct {
	attempts int
	cause    error
	holds    bool   // the later messages of its key wait for it
	seq      *int64 // its place in its key; nil: the last
}

// storeDead writes at least one attempt: a message that was given up without a try would look as if it had never come.
func (i *Inbox) storeDead(ctx context.Context, tx bun.IDB, l letter, d death) error {
	_, err := i.store.SQL.Exec(ctx, tx, store.StoreDead, i.store.DeadArgs(l.id, l.m, max(d.attempts, 1), d.cause, d.holds, d.seq)...)
	return store.Explain(err)
}

// reductions returns the forms in which a dead letter is stored. A form is used if PostgreSQL refused the one before it: the message as it
// came, then less of it, then ASCII only under a key of its own.
func reductions(l letter) []letter {
	less := l
	less.m, less.reduced = reduced(l.m), true
	plain := less
	plain.id = l.id.Disordered()
	plain.id.Key = store.Hashed(l.id.Tenant, l.id.Source, l.id.Key.String())
	plain.id.Tenant, plain.id.Source = ascii(l.id.Tenant), ascii(l.id.Source)
	plain.m = withoutFields(less.m)
	return []letter{l, less, plain}
}

// reduced returns m with its names and the beginning of its payload. It is marked as unreadable, so that a replay does not call the handler
// with it.
func reduced(m *messaging.Message) *messaging.Message {
	return messaging.NewMessage(event.Envelope{
		ID: store.Identifier(m.ID), Type: store.Identifier(m.Type), Topic: store.Identifier(m.Topic), AggregateType: store.Identifier(m.AggregateType),
		AggregateID: store.Identifier(m.AggregateID), RoutingKey: store.Identifier(m.RoutingKey), ContentType: store.Identifier(m.ContentType),
		Metadata: event.Metadata{messaging.UnreadableKey: "PostgreSQL refused the message as it came, see the error"},
		Payload:  m.Payload[:min(len(m.Payload), keptPayload)],
	}, m.Attempt, nil)
}

// withoutFields returns a reduced m with only the fields by which a person finds the message at the broker.
func withoutFields(m *messaging.Message) *messaging.Message {
	return messaging.NewMessage(event.Envelope{
		ID: ascii(m.ID), Type: ascii(m.Type), Topic: ascii(m.Topic), Metadata: m.Metadata, Payload: []byte{},
	}, m.Attempt, nil)
}

// ascii replaces every character that is not printable ASCII by a question mark.
func ascii(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}

// refusal is the error text of a reduced letter: why the message failed, and why PostgreSQL refused to store it whole.
func (l letter) refusal(cause, refused error) error {
	if !l.reduced || refused == nil {
		return cause
	}
	return fmt.Errorf("%s (stored without what PostgreSQL refuses: %s)", ascii(cause.Error()), ascii(refused.Error()))
}

// storeFirst calls write with the forms of a dead letter, one after the other, until PostgreSQL takes one. A form is refused for its
// content, so the next form has less of it. If it refuses all forms, the error is marked by [messaging.LeaveAtBroker].
func storeFirst(l letter, cause error, write func(form letter, reason error) error) error {
	var refused error
	for _, form := range reductions(l) {
		err := write(form, form.refusal(cause, refused))
		if err == nil {
			return nil
		}
		// The cause may be permanent, and the failure to write it down is not. So the error wraps the text of the cause only.
		refused = fmt.Errorf("inbox: make a dead letter of message %q, which failed with %q: %w", l.m.ID, cause.Error(), err)
		if !store.IsUnstorable(err) {
			return refused
		}
	}
	return messaging.LeaveAtBroker(refused)
}

// letters makes the dead letters of a consumer.
type letters struct{ of *consumer }

// giveUp makes a dead letter of m in a transaction of its own: what the handler did is rolled back. Afterwards m is settled, and its copies
// are duplicates. The result is also nil if no dead letter was made: because another process has settled m first, or because other messages
// of its key have been parked meanwhile, and m waits behind them.
func (ls letters) giveUp(ctx context.Context, id store.Identity, m *messaging.Message, n int, cause error) error {
	return storeFirst(newLetter(id, m), cause, func(l letter, reason error) error {
		var became store.Entry
		err := ls.announced(ctx, l, func(a *announcement) (err error) {
			became, err = ls.settleLetter(ctx, l, n, reason, a)
			return err
		})
		if err != nil {
			ls.of.box.count(ctx, ls.of.name, outcomeFailed)
			return err
		}
		if became == store.Duplicate || became != store.Fresh && !l.reduced {
			ls.of.settled(ctx, became)
			return nil
		}
		ls.of.survived()
		ls.gaveUp(ctx, l, reason)
		return nil
	})
}

// settleLetter enters and stores one form. A complete message may be parked behind others, or until a rebuild ends, and is handled then. A
// reduced one is never handled, so it becomes a dead letter at once.
func (ls letters) settleLetter(ctx context.Context, l letter, n int, cause error, a *announcement) (store.Entry, error) {
	return ls.of.settle(ctx, l.id, func(ctx context.Context, u *uow.Unit, became store.Entry) error {
		switch {
		case l.reduced:
		case became == store.Early:
			return ls.of.setAside(ctx, u.DB(), l.id, l.m)
		case became == store.Behind:
			_, err := ls.of.box.table.Parked.Park(ctx, u.DB(), store.Parking{ID: l.id, Message: l.m, Cause: cause, Behind: true})
			return err
		}
		// Only a complete letter with an order can hold up others. A letter that was settled as a copy, or whose consumer continues, holds nothing.
		holds := became == store.Fresh && l.id.Lock != nil && !ls.of.continueAfterDead
		if err := a.make(ctx, u, death{attempts: n, cause: cause, holds: holds}); err != nil || !holds {
			return err
		}
		return ls.of.box.table.Keys.Stop(ctx, u.DB(), store.KeyDead, 0, l.id)
	})
}

// gaveUp counts and logs a dead letter. The log gets the text of the cause and not the error. The letter was stored, so the database works,
// and package quietlog must not count this line among the lines about a database that is down.
func (ls letters) gaveUp(ctx context.Context, l letter, cause error) {
	ls.of.box.count(ctx, ls.of.name, outcomeDead)
	ls.of.box.store.Log.ErrorContext(ctx, "oncebox: message given up, it is a dead letter now", "consumer", ls.of.name,
		"topic", l.m.Topic, "type", l.m.Type, "id", l.m.ID, "tenant", l.id.Tenant, "ordering_key", l.id.Ordering,
		"message_key", l.id.Key.String(), "error", pgsql.CleanText(cause.Error()))
}

// giveUpHead is giveUp for the first message of a key. The dead letter keeps its place. If PostgreSQL refuses all forms, the message stays
// parked, and is tried again after the longest pause.
func (ls letters) giveUpHead(ctx context.Context, k store.ParkedKey, h store.Head, n int, cause error) error {
	l, holds, err := ls.letterOf(k, h, n)
	if err != nil {
		return fmt.Errorf("inbox: make a dead letter of parked message %s: %w", h.Key.MessageKey, err)
	}
	err = storeFirst(l, cause, func(form letter, reason error) error {
		var moved bool
		err := ls.announced(ctx, form, func(a *announcement) (err error) {
			moved, err = ls.moveHead(ctx, k, h, a, death{attempts: n, cause: reason, holds: holds && form.id.Lock != nil, seq: &h.Seq})
			return err
		})
		if err == nil && moved {
			ls.gaveUp(ctx, form, reason)
		}
		return err
	})
	if !messaging.IsLeft(err) {
		return err
	}
	wait := ls.of.retry.longest()
	_, noted := ls.of.box.table.Heads.Fail(ctx, k, h, n, wait, err, needsBuild(err))
	return errors.Join(err, noted)
}

// letterOf makes a dead letter of a parked message. Its key, tenant, source and lock are those of the parked row, even if store.Identify would
// give the message others by now. holds reports whether the messages behind it wait for the dead letter.
func (ls letters) letterOf(k store.ParkedKey, h store.Head, n int) (l letter, holds bool, err error) {
	m := messaging.NewMessage(h.Envelope, n, nil)
	l = newLetter(ls.of.ordered(store.Identify(k.Consumer, m)), m)
	// The key of the parked row and that of the message differ if the consumer has become Unordered since it was parked.
	holds = l.id.Lock == any(k.Lock) && !ls.of.continueAfterDead
	l.id.Key, err = uuid.Parse(h.Key.MessageKey)
	l.id.Tenant, l.id.Source, l.id.Lock = h.Key.TenantID, h.Key.Source, k.Lock
	return l, holds, err
}

// moveHead stores one form in the place of the parked message. moved is false if another process has the key by now.
func (ls letters) moveHead(ctx context.Context, k store.ParkedKey, h store.Head, a *announcement, d death) (moved bool, err error) {
	err = ls.of.box.store.Units.Do(ctx, func(ctx context.Context, u *uow.Unit) (err error) {
		if _, err := ls.of.gate(ctx, u.DB()); err != nil {
			return err
		}
		if _, err := ls.of.box.table.Heads.Lock(ctx, u.DB(), k, h); err != nil {
			return err
		}
		if err := ls.of.box.table.Heads.LockKey(ctx, u.DB(), k); err != nil {
			return err
		}
		if moved, err = ls.of.box.table.Heads.TakeAway(ctx, u.DB(), k, h); err != nil || !moved {
			return err
		}
		if err := a.make(ctx, u, d); err != nil || d.holds {
			return err
		}
		return ls.of.box.table.Keys.Free(ctx, u.DB(), k.Consumer, k.Lock)
	}, store.ReadCommitted())
	return moved, err
}

// announcement is one dead letter and the call of Config.OnDead for it. The unit that makes the letter may run several times.
type announcement struct {
	of     *consumer
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
func (ls letters) announced(ctx context.Context, l letter, write func(a *announcement) error) error {
	a := &announcement{of: ls.of, l: l, hook: ls.of.box.cfg.OnDead}
	if l.announces {
		a.hook = nil
	}
	err := write(a)
	// The first run may have failed because of the hook, so it is repeated without it. A dead letter that is not announced is better than none.
	if err != nil && a.called {
		a.hook, a.failed, a.made = nil, errors.Join(a.failed, err), false
		err = write(a)
	}
	if err == nil && a.made && a.failed != nil {
		ls.of.box.silent.Add(ctx, 1, ofConsumer(ls.of.name))
		ls.of.box.store.Log.ErrorContext(ctx, "oncebox: Config.OnDead failed for a message that is a dead letter "+
			"now", "consumer", ls.of.name, "topic", l.m.Topic,
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
		// Whether the letter is there already has to be known before it is stored, because afterwards it always is.
		_, err := a.of.box.dead.Show(ctx, ref)
		if there = err == nil; err != nil && !errors.Is(err, operator.ErrNotDead) {
			return err
		}
	}
	if err := a.of.box.storeDead(ctx, u.DB(), a.l, d); err != nil {
		return err
	}
	a.made = true
	if a.hook == nil || there {
		return nil
	}
	letter, err := a.of.box.dead.Show(ctx, ref)
	if err != nil {
		return err
	}
	a.called = true
	a.failed = a.call(ctx, letter)
	return nil
}

// call calls the hook behind a savepoint.
func (a *announcement) call(ctx context.Context, d DeadLetter) (err error) {
	ctx, cancel := context.WithTimeout(ctx, a.of.box.cfg.OnDeadTimeout)
	defer cancel()
	defer func() {
		if v := recover(); v != nil { // the unit has rolled back to the savepoint
			err = fmt.Errorf("inbox: Config.OnDead panicked: %v\n%s", v, debug.Stack())
		}
	}()
	ctx = event.WithTenant(messaging.NewContext(ctx, a.l.m), a.l.id.Tenant) // the tenant of the id is always valid
	ctx = event.WithMetadata(ctx, event.Metadata{event.DeadLetterOf: a.l.id.Key.String()})
	return a.of.box.store.Units.Do(ctx, func(ctx context.Context, u *uow.Unit) error { return a.hook(ctx, u, d) })
}
