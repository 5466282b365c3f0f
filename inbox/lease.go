package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/inbox/internal/store"
	leases "github.com/oncebox/oncebox/internal/lease"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/skipped"
	"github.com/oncebox/oncebox/internal/steps"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
)

var (
	// ErrLeased means that another process has the lease of the message's key. It does not count as a failure: the message waits.
	ErrLeased = errors.New("inbox: another process handles a message of this key")

	// ErrLeaseLost means that a handler was silent for so long that another process may have taken over its message. The context of the
	// handler is cancelled with this cause, and its steps return it from then on.
	ErrLeaseLost = errors.New("inbox: the lease of the message is lost: another process may have taken it over")
)

// minRest is the shortest wait for a lease.
const minRest = 50 * time.Millisecond

// freeTimeout bounds the attempt to free a lease early. A lease that is not freed ends by itself.
const freeTimeout = 5 * time.Second

// lease is the right to run one message, once. The steps of the message are written under it.
type lease struct {
	of    *consumer // whose handler runs
	id    store.Identity
	name  store.Lease
	since time.Time // when it was asked for
	freed bool
	held  *leases.Lease // nil before the handler runs
	skip  bool          // the message was skipped

	steps steps.Set
}

// askLease asks for the lease of a message. seq is the place of a parked message, nil for a message from the broker. more is 1 if the try has
// to be counted, 0 if it was counted before.
func askLease(ctx context.Context, of *consumer, id store.Identity, lock int64, seq *int64, more int) (*lease, store.Asked, error) {
	// The token names this try. A process that lost the lease and gets it again is another owner with another token.
	l := &lease{of: of, id: id, name: store.Lease{Consumer: id.Consumer, Lock: lock, Token: uuid.NewString()}, since: time.Now()}
	a, err := of.box.table.Leases.Take(ctx, id, l.name, seq, more)
	if err != nil {
		return nil, a, err
	}
	// The owner may free the lease long before its time is over, so the wait is PollInterval at most. It is at least minRest, so that a
	// lease that has just ended is not asked for in a busy loop.
	a.Rest = min(max(a.Rest, minRest), of.box.cfg.PollInterval)
	return l, a, nil
}

// run calls the handler and renews the lease meanwhile. A panic becomes an error.
func (l *lease) run(ctx context.Context, h messaging.Handler, m *messaging.Message) (err error, lost bool) { //nolint:revive // lost explains err
	l.held = leases.New(&leases.Terms{
		TTL: l.of.box.cfg.LeaseTTL, Lost: ErrLeaseLost,
		Renew: func(ctx context.Context) (ours bool, err error) { return l.of.box.table.Leases.Renew(ctx, l.name) },
		Log:   l.of.box.store.Log, What: "a message", Attrs: []any{"consumer", l.of.name, "message_key", l.id.Key.String()},
	}, l.since)
	timed, cancel := l.of.timed(ctx)
	defer cancel()
	lost, err = l.held.Hold(timed, func(ctx context.Context) error {
		// Statements that the handler sends to the pool are refused: they would be committed by themselves, and repeated with the next try.
		if pool, ok := l.of.box.store.DB(ctx).(*bun.DB); ok {
			ctx = pgsql.UnderLease(ctx, pool.DB)
		}
		ctx, mark := skipped.With(steps.WithRunner(ctx, l))
		err := cmp.Or(call(ctx, h, m), tooLate(ctx))
		l.skip = err == nil && mark.IsSet()
		return err
	})
	return explainLate(timed, err), lost
}

// free gives the lease back early. It returns false if another process has taken the lease, or if the database did not answer.
func (l *lease) free(ctx context.Context) bool {
	if l.freed {
		return true
	}
	// The handler's context may have ended, which is the usual reason for freeing. So freeing gets a context of its own.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), freeTimeout)
	defer cancel()
	ours, err := l.of.box.table.Leases.Free(ctx, l.of.box.store.DB(ctx), l.name)
	l.freed = err == nil && ours
	return l.freed
}

type leaseKey struct{}

// context returns ctx with the lease, where StepInUnit and endLease find it.
func (l *lease) context(ctx context.Context) context.Context {
	return context.WithValue(ctx, leaseKey{}, l)
}

// endLease is part of every transaction that settles a message. It frees the lease, and fails if the handler has lost it. For a handler
// without a lease it does nothing.
func endLease(ctx context.Context, box *Inbox, u *uow.Unit, id store.Identity) error {
	l, ok := ctx.Value(leaseKey{}).(*lease)
	// A handler may settle messages of another inbox or another message in the same context. Their leases are not this one.
	if !ok || l.of.box != box || l.id != id {
		return nil
	}
	ours, err := l.of.box.table.Leases.Free(ctx, u.DB(), l.name)
	if err != nil {
		return fmt.Errorf("inbox: free the lease of message %s: %w", id.Key, err)
	}
	if !ours {
		return ErrLeaseLost
	}
	u.AfterCommit(func(context.Context) { l.freed = true })
	return nil
}
