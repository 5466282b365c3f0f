package inbox

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/deadletter"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/uow"
)

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
