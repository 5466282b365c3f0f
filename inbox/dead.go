package inbox

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/deadletter"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/uow"
)

// deadOf names the dead letter of a message.
func deadOf(ref operator.MessageRef) deadletter.One {
	one := deadletter.One{Name: ref.MessageKey + " of consumer " + ref.Consumer, Where: &pgsql.Where{}}
	args, err := store.RefArgs(ref)
	if one.Invalid = err; err == nil {
		one.Where.Add("d.message_key = %s::uuid AND d.consumer = %s::text AND d.tenant_id = %s::text AND d.source = %s::text", args...)
	}
	return one
}

// DeadLetter is a message that a consumer gave up.
type DeadLetter struct {
	Key operator.MessageRef
	// Envelope is the message as it came. Only identifiers that cannot be stored were made readable.
	Envelope event.Envelope
	// Attempts counts its tries, as far as they are known.
	Attempts int
	// Error is the last error, at most 2 KiB of it, in valid UTF-8 and without NUL; beyond that it may be any text.
	Error string
	// DiedAt is when it was given up.
	DiedAt time.Time
	// Holds says that the later messages of its key wait until it is replayed or discarded.
	Holds bool
}

// Dead lists the dead letters that the filter selects, oldest first, without their payloads. A page has at most limit of
// them (0: 100) and begins after the last one of the page before (nil: from the start). Only its DiedAt and Key count.
func (i *Inbox) Dead(ctx context.Context, filter operator.DeadFilter, after *DeadLetter, limit int) ([]DeadLetter, error) {
	return i.dead.List(ctx, filter, after, limit)
}

// DeadLetter returns one dead letter with its payload, or [operator.ErrNotDead].
func (i *Inbox) DeadLetter(ctx context.Context, key operator.MessageRef) (DeadLetter, error) {
	return i.dead.Show(ctx, i.store.DB(ctx), deadOf(key))
}

// CountDead counts the dead letters that the filter selects.
func (i *Inbox) CountDead(ctx context.Context, filter operator.DeadFilter) (int64, error) {
	return i.dead.Count(ctx, filter)
}

// DeadErrors lists why the latest dead letters were given up, the newest first: at most limit of them (0: 100). It reads no more
// rows than that, however many dead letters there are.
func (i *Inbox) DeadErrors(ctx context.Context, limit int) ([]operator.DeadError, error) {
	return i.dead.Errors(ctx, limit)
}

// Replay parks a dead letter again, and the processes of its consumer handle it in their [Inbox.RunParked]; the caller needs no handler.
// The letter returns to its place in its key, before the messages that wait behind it, and its attempts start at zero. It returns
// [operator.ErrNotDead] if there is none with this key.
//
// If the key flows, because the letter has no order or its consumer goes on after dead letters, the letter is handled as soon as a process
// looks for parked messages, and from then on later messages of the key wait for it. A letter whose key another dead letter holds waits
// until that one is decided. A letter whose message came again after its entry had expired, and was handled then, is not handled twice.
func (i *Inbox) Replay(ctx context.Context, key operator.MessageRef, by operator.By) error {
	return i.dead.Replay(ctx, deadOf(key), by)
}

// ReplayEdited is [Inbox.Replay] with a new payload, in one transaction. The rest of the message stays, and other consumers keep their
// copies. The former payload is lost. by must give a reason. An empty payload is an error, and so is a payload that is larger than
// Config.MaxPayload.
func (i *Inbox) ReplayEdited(ctx context.Context, key operator.MessageRef, payload []byte, by operator.By) error {
	return i.dead.ReplayEdited(ctx, deadOf(key), payload, by)
}

// Discard deletes a dead letter for good; the messages that wait behind it are handled without it. by must give a reason. It returns
// [operator.ErrNotDead] if there is none with this key.
func (i *Inbox) Discard(ctx context.Context, key operator.MessageRef, by operator.By) error {
	return i.dead.Discard(ctx, deadOf(key), by)
}

// ReplayAll replays the dead letters that the filter selects and that are dead when it begins, per key in their order. It returns how many
// it moved, also together with an error: each batch is a transaction of its own, and earlier batches stay committed. See [Inbox.Replay].
func (i *Inbox) ReplayAll(ctx context.Context, filter operator.DeadFilter, by operator.By, bulk *operator.Bulk) (int64, error) {
	return i.dead.ReplayAll(ctx, filter, by, bulk)
}

// DiscardAll discards the dead letters that the filter selects and that are dead when it begins. by must give a reason. It returns how many
// it deleted, also together with an error, as [Inbox.ReplayAll] does.
func (i *Inbox) DiscardAll(ctx context.Context, filter operator.DeadFilter, by operator.By, bulk *operator.Bulk) (int64, error) {
	return i.dead.DiscardAll(ctx, filter, by, bulk)
}

// Audit lists the actions of operators and of the retention, newest first. A page has at most limit entries (0: 100) and begins before the
// last one of the page before (nil: with the newest). Only its ID counts. Entries are kept for [Config.AuditRetention].
func (i *Inbox) Audit(ctx context.Context, filter operator.AuditFilter, before *operator.AuditEntry, limit int) ([]operator.AuditEntry, error) {
	return i.audit.List(ctx, i.store.DB(ctx), filter, before, limit)
}

// deadBatch is how many dead letters one transaction moves. Their keys are locked meanwhile.
const deadBatch = 100

// death holds the fields of a dead letter that do not belong to its message.
type death struct {
	attempts int
	cause    error
	holds    bool   // the later messages of its key wait for it
	seq      *int64 // its place in its key; nil: the last
}

func (i *Inbox) storeDead(ctx context.Context, tx bun.IDB, l letter, d death) error {
	args, err := store.MessageArgs(l.id, l.m, max(d.attempts, 1), pgsql.CleanText(d.cause.Error()))
	if err != nil {
		return err
	}
	_, err = i.store.SQL.Exec(ctx, tx, store.StoreDead, append(args, d.holds, d.seq)...)
	return store.Explain(err)
}

// newDead returns the inbox's side of package deadletter, which lists, replays and discards dead letters.
func (i *Inbox) newDead() *deadletter.Box[DeadLetter] {
	return &deadletter.Box[DeadLetter]{
		Name: "inbox",
		SQL: deadletter.SQL{
			Consumer: "d.consumer", ID: "d.message_key", List: store.ListDead, After: store.AfterDead,
			Show: store.ShowDead, Count: store.CountDead, Errors: store.ListDeadErrors,
			Pick: store.PickDead, Beyond: "(d.key_lock, d.seq) > (%s::bigint, %s::bigint)", Lock: store.LockKeys,
			Edit: store.EditDead, Replay: store.ReplayDead, Discard: store.DiscardDead, Expire: store.ForgetDead, Settle: store.SetTopics,
		},
		Run: i.store.AdHoc(), DB: i.store.Units.DB, Within: i.withinDead,
		Scan: func(scan pgsql.Scan, d *DeadLetter) (err error) {
			d.Key, d.Envelope, err = store.ScanEnvelope(scan, &d.Attempts, &d.Error, &d.DiedAt, &d.Holds)
			return err
		},
		Place: func(d *DeadLetter) []any {
			return []any{d.DiedAt, d.Key.MessageKey, d.Key.Consumer, d.Key.TenantID, d.Key.Source}
		},
		NewBatch: func() deadletter.Batch { return &deadMessages{} }, BatchSize: deadBatch,
		MaxPayload: i.cfg.MaxPayload, Log: i.store.Log,
	}
}

// withinDead runs fn in a unit. If fn has moved dead letters, RunParked is woken after the commit.
func (i *Inbox) withinDead(ctx context.Context, fn func(context.Context, bun.IDB) (bool, error)) error {
	return i.store.Units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		moved, err := fn(ctx, u.DB())
		if moved {
			u.AfterCommit(func(context.Context) { i.wake() })
		}
		return err
	}, store.ReadCommitted())
}

// deadMessages are the dead letters of one transaction, in the order of the locks of their keys.
type deadMessages struct {
	keys, consumers, tenants, sources []string
	locks                             []int64
	seq                               int64 // of the last one
}

func (b *deadMessages) Add(scan pgsql.Scan) error {
	var (
		k    operator.MessageRef
		lock int64
	)
	if err := scan(&k.MessageKey, &k.Consumer, &k.TenantID, &k.Source, &lock, &b.seq); err != nil {
		return err
	}
	b.keys, b.consumers = append(b.keys, k.MessageKey), append(b.consumers, k.Consumer)
	b.tenants, b.sources = append(b.tenants, k.TenantID), append(b.sources, k.Source)
	b.locks = append(b.locks, lock)
	return nil
}

func (b *deadMessages) Len() int     { return len(b.locks) }
func (b *deadMessages) Place() []any { return []any{b.locks[len(b.locks)-1], b.seq} }
func (b *deadMessages) Locks() []any { return []any{b.locks} }
func (b *deadMessages) Refs() []any  { return []any{b.keys, b.consumers, b.tenants, b.sources, b.locks} }
func (b *deadMessages) Keys() []any  { return []any{b.consumers, b.locks} }
