package dead

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/deadletter"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/uow"
)

// batchSize is how many dead letters one transaction moves. Their keys are locked meanwhile.
const batchSize = 100

// New is for package inbox: see inbox.Inbox.Dead. maxPayload is inbox.Config.MaxPayload.
func New(h *store.Handle, maxPayload int) *Letters { return &Letters{engine(h, maxPayload)} }

// engine returns the inbox as the engine of dead letters knows it.
func engine(h *store.Handle, maxPayload int) *deadletter.Box[Letter] {
	return &deadletter.Box[Letter]{
		Name: string(operator.PartInbox),
		SQL: deadletter.SQL{
			Consumer: "d.consumer", ID: "d.message_key", List: store.ListDead, After: store.AfterDead,
			Show: store.ShowDead, Count: store.CountDead, Errors: store.ListDeadErrors,
			Pick: store.PickDead, Beyond: "(d.key_lock, d.seq) > (%s::bigint, %s::bigint)", Lock: store.LockKeys,
			Edit: store.EditDead, Replay: store.ReplayDead, Discard: store.DiscardDead, Expire: store.ForgetDead, Settle: store.SetTopics,
		},
		Run: h.AdHoc(), DB: h.DB,
		Within: func(ctx context.Context, fn func(context.Context, bun.IDB) (bool, error)) error {
			return within(ctx, h, fn)
		},
		Scan: func(scan pgsql.Scan, d *Letter) (err error) {
			d.Key, d.Envelope, err = store.ScanEnvelope(scan, &d.Attempts, &d.Error, &d.Fingerprint, &d.FailedBy, &d.DiedAt, &d.Holds)
			return err
		},
		Place: func(d *Letter) []any {
			return []any{d.DiedAt, d.Key.MessageKey, d.Key.Consumer, d.Key.TenantID, d.Key.Source}
		},
		NewBatch: func() deadletter.Batch { return &messages{} }, BatchSize: batchSize,
		MaxPayload: maxPayload, Log: h.Log,
	}
}

// within runs fn in a unit. If fn has moved dead letters, RunParked is woken after the commit.
func within(ctx context.Context, h *store.Handle, fn func(context.Context, bun.IDB) (bool, error)) error {
	return h.Units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		moved, err := fn(ctx, u.DB())
		if moved {
			u.AfterCommit(func(context.Context) { h.Wake() })
		}
		return err
	}, store.ReadCommitted())
}

// messages are the dead letters of one transaction, in the order of the locks of their keys.
type messages struct {
	keys, consumers, tenants, sources []string
	locks                             []int64
	seq                               int64 // of the last one
}

func (b *messages) Add(scan pgsql.Scan) error {
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

func (b *messages) Len() int     { return len(b.locks) }
func (b *messages) Place() []any { return []any{b.locks[len(b.locks)-1], b.seq} }
func (b *messages) Locks() []any { return []any{b.locks} }
func (b *messages) Refs() []any  { return []any{b.keys, b.consumers, b.tenants, b.sources, b.locks} }
func (b *messages) Keys() []any  { return []any{b.consumers, b.locks} }
