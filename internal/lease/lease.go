// Package lease keeps a lease in the database while work is done under it. A lease is the right to do something alone. It ends when its owner has
// been silent for its length.
package lease

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/retry"
)

// Terms describe a lease: how long it lasts, and how it is renewed.
type Terms struct {
	// TTL is how long the owner may be silent before another one may take the lease.
	TTL time.Duration
	// Lost is the cause with which the context of the work is cancelled when the lease is lost.
	Lost error
	// Renew makes the lease last for TTL from now, by the clock of the database. ours is false if another owner has it.
	Renew func(ctx context.Context) (ours bool, err error)
	// Log gets a warning for every renewal that failed, and when the lease is lost.
	Log *slog.Logger
	// What names the kind of the leased thing for the log: "an idempotency key". Attrs identify it.
	What  string
	Attrs []any
}

// Lease is one lease. All durations are measured by the clock of this process, all moments by that of the database. The lease counts from when it
// was requested, so for this process it ends before it ends for any other.
type Lease struct {
	terms Terms
	since time.Time
	lose  atomic.Pointer[context.CancelCauseFunc] // of the work under way
	lost  atomic.Bool
}

// New returns a lease that this process holds, and that was requested at the moment since.
func New(terms *Terms, since time.Time) *Lease { return &Lease{terms: *terms, since: since} }

// Worn reports whether so much of the lease has passed that it should be renewed before work begins.
func (l *Lease) Worn() bool { return time.Since(l.since) >= l.terms.TTL/3 }

// Renew renews the lease once. That works even after it has ended, as long as nobody else has taken it.
func (l *Lease) Renew(ctx context.Context) (ours bool, err error) {
	began := time.Now()
	ours, err = l.terms.Renew(ctx)
	if err != nil || !ours {
		return false, err
	}
	l.since = began
	return true, nil
}

// Hold calls fn and renews the lease until fn has ended, every third of it. A renewal that fails is tried again until the lease ends. A
// renewal that hangs is given up after a third of the lease, so that there is time for another one. When fn has ended, a renewal that is
// under way has [Grace] to end.
//
// When ctx is done, the renewals go on for one more Terms.TTL, because fn may need a while to end, and another process must not begin meanwhile.
// Then they end. So work that ignores its context keeps the lease for about two TTL from there on, and not for ever.
//
// When the lease is lost, or has ended as far as this process can know, the context of fn is cancelled with the cause Terms.Lost, the renewals end,
// and Hold returns lost as true. A panic goes on.
func (l *Lease) Hold(ctx context.Context, fn func(ctx context.Context) error) (lost bool, err error) {
	held, release := context.WithCancel(context.WithoutCancel(ctx))
	ctx, cancel := context.WithCancelCause(ctx)
	lose := context.CancelCauseFunc(func(cause error) {
		cancel(cause)
		release()
	})
	l.lost.Store(false)
	l.lose.Store(&lose)
	end := time.AfterFunc(time.Until(l.since.Add(l.terms.TTL)), l.warnAndLose(ctx))
	defer end.Stop()
	var renewing sync.WaitGroup
	renewing.Go(func() { l.keep(held, end) })
	defer renewing.Wait()
	defer release()
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() {
		_ = backoff.Wait(held, l.terms.TTL)
		release()
	})()
	err = fn(ctx)
	return l.lost.Load(), err
}

// keep renews the lease until ctx ends. The timer fires when the lease does.
func (l *Lease) keep(ctx context.Context, end *time.Timer) {
	Repeat(ctx, l.since, l.terms.TTL, func(ctx context.Context) error {
		ours, err := l.Renew(ctx)
		switch {
		case err != nil:
			return err
		case ours:
			end.Reset(time.Until(l.since.Add(l.terms.TTL)))
		default:
			l.warnAndLose(ctx)()
		}
		return nil
	}, func(err error) {
		l.warn(ctx, "could not be renewed, it is tried again until it ends", "error", err)
	})
}

// Lose ends the lease for work that finds out by itself that another owner has it.
func (l *Lease) Lose() {
	lose := l.lose.Load()
	if lose == nil {
		return
	}
	l.lost.Store(true)
	(*lose)(l.terms.Lost)
}

func (l *Lease) warnAndLose(ctx context.Context) func() {
	return func() {
		if !l.lost.Swap(true) {
			l.warn(ctx, "was lost, the work under it is cancelled")
		}
		l.Lose()
	}
}

func (l *Lease) warn(ctx context.Context, what string, attrs ...any) {
	l.terms.Log.WarnContext(ctx, "oncebox: the lease of "+l.terms.What+" "+what, append(slices.Clip(l.terms.Attrs), attrs...)...)
}

// Insist repeats a write of the work that must succeed now: also after ctx was cancelled, and again after a broken connection, for one more Terms.TTL.
func (l *Lease) Insist(ctx context.Context, write func(ctx context.Context) error) error {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.terms.TTL)
	defer cancel()
	for attempt := 1; ; attempt++ {
		err := write(bounded)
		if err == nil || !pgerr.IsConnectionError(err) ||
			(retry.Policy{Delay: 10 * time.Millisecond, MaxDelay: time.Second}).Wait(bounded, attempt) != nil {
			return err
		}
	}
}
