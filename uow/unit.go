package uow

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"
	"slices"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/unit"
)

// Unit is one unit of work, or one savepoint in it, together with a context. Use it within the function that it was passed to, also from goroutines
// that end before that function returns.
//
// Aggregates and events that are passed to a Unit belong to the innermost open savepoint, even if the Unit is that of an outer level. The same is
// true of statements, so an event cannot outlive the data that it announces.
//
// The tenant, metadata and trace of an event come from a context: for [Unit.Save] from its argument, for [Unit.Add] and [Unit.Track] from the
// context of the Unit, which [Manager.Do] or [FromContext] returned.
type Unit struct {
	*level

	ctx context.Context //nolint:containedctx // Track and Add have no parameter for it
}

// DB returns the transaction as one of bun, for every statement of the unit and for calls that take a transaction, as outbox.Store.Delayed().Cancel. Leave
// Commit and Rollback to the unit, as with [Unit.SQL]. [Unit.SQL] and [Unit.Pgx] are the same transaction.
func (u *Unit) DB() bun.Tx { return u.root.tx.bun }

// SQL returns the transaction as one of database/sql: for plain SQL, for the code that sqlc generates for database/sql, and for GORM, ent
// and sqlx. Leave COMMIT and ROLLBACK to the unit, also as statements: a unit whose function has ended the transaction fails with
// [ErrTransactionEnded], because its events were not in it. Once the unit has ended, statements return [sql.ErrTxDone].
func (u *Unit) SQL() *sql.Tx { return u.root.tx.bun.Tx }

// Track makes the unit emit the events that the aggregates have recorded by the time the unit ends. An aggregate that is tracked twice is emitted
// once. Aggregates are emitted in the order in which they were tracked first. Track panics when the unit has ended, because the events would be
// lost without an error, and when an argument has no identity: nil, or a value that cannot be compared.
func (u *Unit) Track(aggregates ...event.Aggregate) {
	entries := make([]entry, len(aggregates))
	for i, a := range aggregates {
		if !identifiable(a) {
			panic(fmt.Sprintf("uow: Track: %#v is not a pointer to an aggregate", a))
		}
		entries[i] = entry{ctx: u.ctx, aggregate: a}
	}
	if err := u.give(entries...); err != nil {
		panic("uow: Track: " + err.Error())
	}
}

// identifiable reports whether the aggregate has an identity, so that two instances can be compared.
func identifiable(a event.Aggregate) bool {
	v := reflect.ValueOf(a)
	if v.IsValid() && v.Kind() == reflect.Pointer {
		return !v.IsNil()
	}
	return v.IsValid() && v.Comparable()
}

// Add emits an event that no aggregate recorded. payload may be an [event.Event], json.RawMessage, []byte, or anything that can be encoded as JSON.
// If the event is invalid, Add returns the error, and the unit can go on.
func (u *Unit) Add(topic string, payload any, opts ...event.AddOption) error {
	if _, err := u.add(topic, payload, opts); err != nil {
		return fmt.Errorf("uow: Add: %w", err)
	}
	return nil
}

// Schedule emits an event that is published later: when is [event.WithDelay] or [event.WithNotBefore]. Until the time has come, outbox.Store.Delayed()
// cancels the event by a key, or cancels or moves it by its id, which Schedule returns:
//
//	_, err := u.Schedule("reminder", OrderForgotten{order.ID}, event.WithDelay(24*time.Hour), event.WithDedupKey("reminder "+order.ID))
//	...
//	_, err := app.Outbox.Delayed().CancelKey(ctx, u.DB(), "reminder "+order.ID)
//
// payload, opts and errors are those of [Unit.Add]. A time that has passed, and a delay of 0, publish the event at once.
func (u *Unit) Schedule(topic string, payload any, when event.AddOption, opts ...event.AddOption) (id string, err error) {
	if id, err = u.add(topic, payload, append([]event.AddOption{when}, opts...)); err != nil {
		return "", fmt.Errorf("uow: Schedule: %w", err)
	}
	return id, nil
}

// add returns the id of the event.
func (u *Unit) add(topic string, payload any, opts []event.AddOption) (id string, err error) {
	named := false
	opts = append(slices.Clip(opts), func(e *event.Envelope) { named = e.ID != "" })
	env, err := u.root.manager.maker.Payload(u.ctx, topic, payload, opts)
	if err != nil {
		return "", err
	}
	return env.ID, u.give(entry{envelope: env, named: named})
}

// AfterCommit runs fn once the unit is committed, and never if it is not. The context of fn is not cancelled with the
// caller's. fn cannot fail the unit any more: a panic of fn is logged. It panics when the unit has ended.
func (u *Unit) AfterCommit(fn func(context.Context)) {
	r := u.root
	r.mu.Lock()
	defer r.mu.Unlock()
	if u.ended {
		panic("uow: AfterCommit: " + errEnded.Error())
	}
	r.active.hooks = append(r.active.hooks, fn)
}

// OpenIn reports whether a unit of the pool is open. The guard of the pool asks, see config.Config.RefusePool.
func (u *inside) OpenIn(pool *sql.DB) bool {
	return (*level)(u).nearest(func(l *level) bool { return l.root.manager.db.DB == pool }) != nil
}

// Ended returns an error if the transaction has ended. Oncebox's own statements ask on a pool of config.UseDB, whose connections do not refuse
// statements by themselves.
func (u *inside) Ended(tx *sql.Tx) error {
	if l := (*level)(u).nearest(func(l *level) bool { return l.root.tx.bun.Tx == tx }); l != nil && !l.root.tx.exact {
		return l.root.tx.ended()
	}
	return nil
}

// Outside returns a context without the units that ctx carries. Work with this context is not part of them: [Manager.DB] returns the pool, and a
// unit that [Manager.Do] begins commits by itself. It uses another connection. If it needs a lock that the unit around it holds, it waits until its
// statement is cancelled, because the unit waits for it. Use it for work that has to stay even if the unit rolls back, and for reads beside the
// unit. A pool that refuses statements within a unit ([ErrPool]) accepts them with this context.
func Outside(ctx context.Context) context.Context { return pgsql.Outside(ctx) }

// FromContext returns the innermost unit that ctx carries, of whatever manager. Events of the returned Unit have the tenant, the metadata and the
// trace of ctx.
func FromContext(ctx context.Context) (*Unit, bool) {
	l := find(ctx, func(*level) bool { return true })
	if l == nil {
		return nil, false
	}
	l.root.used.Store(true)
	return &Unit{level: l, ctx: ctx}, true
}

// MustFromContext is [FromContext] for code that always runs in a unit, such as a handler of httpmw, inbox or messaging. It panics without a unit.
func MustFromContext(ctx context.Context) *Unit {
	u, ok := FromContext(ctx)
	if !ok {
		panic("uow: MustFromContext: the context carries no unit of work: pass the context that a handler or Manager.Do has got")
	}
	return u
}

// inside is a level as oncebox's own packages use it, see [unit.Unit]. It is a type of its own, so that [Unit] does not export these methods.
type inside level

var _ unit.Unit = (*inside)(nil)

func (u *inside) Send(ctx context.Context, b *pgsql.Batch) error {
	tx := &u.root.tx
	if !tx.exact { // other connections refuse by themselves
		if err := tx.ended(); err != nil {
			return err
		}
	}
	return pgerr.Explain(pgsql.Send(ctx, tx.conn, tx.bun, b))
}

func (u *inside) SendLast(b *pgsql.Batch) (ok bool) {
	r := u.root
	r.mu.Lock()
	defer r.mu.Unlock()
	if u.ended {
		return false
	}
	r.active.last.Append(b)
	return true
}

func (u *inside) Identified(xid string) { u.root.tx.identified(xid) }

func (u *inside) ProvedBy(find unit.Proof) {
	r := u.root
	r.mu.Lock()
	defer r.mu.Unlock()
	r.active.proofs = append(r.active.proofs, find)
}

func (u *inside) Used() bool { return u.root.used.Load() }
