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
	"github.com/oncebox/oncebox/messaging"
)

var (
	// ErrLeased means that another process has the lease of the message's key. It is no failure: the message waits.
	ErrLeased = errors.New("inbox: another process handles a message of this key")

	// ErrLeaseLost means that a handler was silent for so long that another process may have taken over its message. It is the
	// cause with which the context of the handler is cancelled, and what its steps return from then on.
	ErrLeaseLost = errors.New("inbox: the lease of the message is lost: another process may have taken it over")
)

// What came of asking for a lease.
const (
	leaseTaken  = "taken"
	leaseHeld   = "held"
	leaseBehind = "behind"
	leaseGone   = "gone"
)

const (
	takeLease = `
SELECT outcome, attempts, unended, extract(epoch FROM rest)::float8 FROM {schema}.inbox_take_lease($1::uuid, $2::text, $3::text, $4::text, $5::bigint, $6::uuid,
	$7::interval, $8::bigint, $9::integer)`

	// renewLease also renews a lease that has ended, as long as nobody has taken it.
	renewLease = `
UPDATE {schema}.inbox_lease SET lease_until = clock_timestamp() + $4::interval
WHERE consumer = $1::text AND key_lock = $2::bigint AND owner = $3::uuid`

	// freeLease is the fence as well: a process that frees nothing has lost it.
	freeLease = `DELETE FROM {schema}.inbox_lease WHERE consumer = $1::text AND key_lock = $2::bigint AND owner = $3::uuid`
)

// minRest is the shortest wait for a lease.
const minRest = 50 * time.Millisecond

// freeTimeout bounds the attempt to free a lease early. It ends by itself as well.
const freeTimeout = 5 * time.Second

// lease is the right to run one message, once. The steps of the message are written under it.
type lease struct {
	w     *wrapped // whose handler it is
	id    store.Identity
	lock  int64
	token string
	since time.Time // when it was asked for
	freed bool
	held  *leases.Lease // nil before the handler runs
	skip  bool          // the message was skipped

	steps steps
}

// asked is the answer of inbox_take_lease.
type asked struct {
	outcome string
	tried   store.Attempts
	rest    time.Duration
}

// ask asks for the lease of a message: of a parked one if seq is its place. more is 0 if the try was counted before.
func (w *wrapped) ask(ctx context.Context, id store.Identity, lock int64, seq *int64, more int) (*lease, asked, error) {
	l := &lease{w: w, id: id, lock: lock, token: uuid.NewString(), since: time.Now()}
	var (
		a    asked
		rest float64
	)
	err := w.box.store.SQL.QueryRow(ctx, w.box.store.DB(ctx), takeLease, append(id.Args(), lock, l.token, w.box.cfg.LeaseTTL, seq, more),
		&a.outcome, &a.tried.N, &a.tried.Unended, &rest)
	a.tried.Begun = true
	if err != nil {
		return nil, a, fmt.Errorf("inbox: take the lease of message %s of consumer %s: %w", id.Key, id.Consumer, store.Explain(err))
	}
	// Its owner may be done long before it ends. A lease that has ended just now is asked for again soon, and not at once.
	a.rest = min(max(seconds(rest), minRest), w.box.cfg.PollInterval)
	return l, a, nil
}

// run has the message handled while the lease is renewed. A panic is an error.
func (l *lease) run(ctx context.Context, h messaging.Handler, m *messaging.Message) (err error, lost bool) { //nolint:revive // lost explains err
	l.held = leases.New(&leases.Terms{
		TTL: l.w.box.cfg.LeaseTTL, Lost: ErrLeaseLost, Renew: l.renew,
		Log: l.w.box.store.Log, What: "a message", Attrs: []any{"consumer", l.w.consumer, "message_key", l.id.Key.String()},
	}, l.since)
	timed, cancel := l.w.timed(ctx)
	defer cancel()
	lost, err = l.held.Hold(timed, func(ctx context.Context) error {
		if pool, ok := l.w.box.store.DB(ctx).(*bun.DB); ok {
			ctx = pgsql.UnderLease(ctx, pool.DB)
		}
		ctx, mark := skipped.With(ctx)
		err := cmp.Or(call(ctx, h, m), tooLate(ctx))
		l.skip = err == nil && mark.IsSet()
		return err
	})
	return explainLate(timed, err), lost
}

func (l *lease) renew(ctx context.Context) (ours bool, err error) {
	renewed, err := l.w.box.store.SQL.Exec(ctx, l.w.box.store.DB(ctx), renewLease, l.w.consumer, l.lock, l.token, l.w.box.cfg.LeaseTTL)
	return renewed > 0, err
}

// free lets others have the key. false: somebody has taken it, or nobody knows.
func (l *lease) free(ctx context.Context) bool {
	if l.freed {
		return true
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), freeTimeout)
	defer cancel()
	n, err := l.w.box.store.SQL.Exec(ctx, l.w.box.store.DB(ctx), freeLease, l.w.consumer, l.lock, l.token)
	l.freed = err == nil && n == 1
	return l.freed
}

type leaseKey struct{}

func (l *lease) context(ctx context.Context) context.Context {
	return context.WithValue(ctx, leaseKey{}, l)
}
