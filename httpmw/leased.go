package httpmw

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/oncebox/oncebox/idempotency"
)

// LeaseConfig makes [Idempotency] hold a lease of the key instead of a transaction. See docs/http.md, Lease mode.
type LeaseConfig struct {
	// TTL is the length of the lease that a process takes on the key of a request, at least 1s. The process renews the lease after each third of TTL. If
	// the process dies, another process takes the request over when the lease has ended. Default: 90s.
	TTL time.Duration
	// Recover asks the other system whether a step of [idempotency.StepOnce] was done, if the step was begun and has no result. Recover is called before
	// the handler is run again, for one request at a time, within IdempotencyConfig.Timeout. The argument r is that request, whose body can be read. If
	// Recover returns idempotency.StepDone, the handler goes on with the returned result. If Recover returns idempotency.StepNotDone, the handler does
	// the step. After an error, or the zero Outcome, the step stays unknown: the client gets 503, and no handler runs. Consider that a call to the other
	// system may still be on its way. The log has only the type of the error, because the text may quote the request. Default: nil, steps stay unknown
	// until an operator resolves them.
	Recover func(ctx context.Context, r *http.Request, u idempotency.Unknown) (idempotency.Outcome, error)
}

// minLease is the shortest lease that can be renewed in time on a busy machine.
const minLease = time.Second

func (c *LeaseConfig) validate() error {
	if c != nil && c.TTL != 0 && c.TTL < minLease {
		return fmt.Errorf("httpmw: IdempotencyConfig.Lease.TTL is %s: give at least %s", c.TTL, minLease)
	}
	return nil
}

// WithDefaults returns a copy in which the fields that are zero have their defaults.
func (c *LeaseConfig) WithDefaults() LeaseConfig {
	out := *c
	out.TTL = cmp.Or(out.TTL, idempotency.DefaultLease)
	return out
}

func (c *LeaseConfig) ttl() time.Duration { return c.WithDefaults().TTL }

// leased does for a handler without a transaction what once does for others: it commits the claim of the key before the handler runs, and
// the answer afterwards.
func (k *keyed) leased(ctx context.Context, e *exchange, key idempotency.Key, fp idempotency.Fingerprint) (*answer, string) {
	claim, found, err := k.claim(ctx, e, key, fp)
	if claim == nil {
		return k.conclude(ctx, e, run{found: found}, key, err)
	}
	stored := false
	defer func() {
		// The handler has panicked, or its answer could not be stored. The key is released even if the lease seems to be lost: an unconfirmed renewal
		// may have succeeded, and would keep the key from everybody. Release does not touch the lease of another process.
		if !stored {
			k.release(ctx, claim, key)
		}
	}()
	var rec *recorder
	err = claim.Run(ctx, func(ctx context.Context) error {
		var err error
		rec, err = e.run(ctx, k.cfg.MaxHeld)
		return err
	})
	if rec == nil { // the lease was lost before the handler began
		return k.conclude(ctx, e, run{}, key, fmt.Errorf("%w: %w", idempotency.ErrInProgress, err))
	}
	if errors.Is(err, idempotency.ErrLeaseLost) {
		// Another process has the lease, so its result counts, whatever this handler has answered.
		return k.concludeLeased(ctx, e, key, err)
	}
	if errors.Is(err, errSilent) || errors.Is(err, errPast) { // only the handler's steps show whether its work was done, when it runs again
		return k.concludeLeased(ctx, e, key, err)
	}
	if rec.drops() && !k.keeps(e, rec) {
		if err != nil {
			return k.concludeLeased(ctx, e, key, err)
		}
		return rec.answer(), outcomeReleased
	}
	resp := k.response(ctx, rec)
	if err != nil {
		k.log.WarnContext(ctx, "oncebox: the request was executed, but the body of its answer cannot be stored; a retry with this key gets status "+
			"410", "key", key.String(), "route", e.r.Pattern,
			"error", err)
		resp.Body, resp.Omitted = nil, idempotency.OmittedNotHeld
	}
	if err := claim.Complete(ctx, k.units.DB(ctx), resp); err != nil {
		return k.concludeLeased(ctx, e, key, err)
	}
	stored = true
	if err != nil {
		return k.tombstone(e, &resp), outcomeExecuted // retries get the same problem
	}
	return rec.answer(), outcomeExecuted
}

// claim claims the key. It resolves unknown steps before the handler runs.
func (k *keyed) claim(ctx context.Context, e *exchange, key idempotency.Key, fp idempotency.Fingerprint) (
	_ *idempotency.Claim, found *idempotency.Response, err error,
) {
	opts := []idempotency.ClaimOption{idempotency.WithLease(k.cfg.Lease.ttl())}
	if k.cfg.Lease.Recover != nil {
		opts = append(opts, idempotency.WithRecovery())
	}
	claim, found, err := k.store.Claim(ctx, k.units.DB(ctx), key, fp, opts...)
	if claim == nil || len(claim.Unknown()) == 0 {
		return claim, found, err
	}
	known := false
	defer func() {
		if !known {
			k.release(ctx, claim, key)
		}
	}()
	err = claim.Keep(ctx, func(ctx context.Context) error {
		for _, u := range claim.Unknown() {
			// Each call gets a request of its own, because the one before has read the body.
			r := e.request(ctx)
			outcome, err := k.cfg.Lease.Recover(r.Context(), r, u)
			if err != nil {
				k.log.ErrorContext(ctx, "oncebox: LeaseConfig.Recover returned an error, so the outcome of the step stays unknown until the next retry of "+
					"the request", "key", key.String(), "step", u.Step,
					"type", fmt.Sprintf("%T", err)) // the error's text may quote the request
				continue
			}
			if err := claim.Resolve(ctx, u, outcome); err != nil {
				k.log.ErrorContext(ctx, "oncebox: LeaseConfig.Recover has found the outcome of a step, but it could not be "+
					"stored", "key", key.String(), "step", u.Step, "error", err)
			}
		}
		return nil
	})
	switch known = err == nil && len(claim.Unknown()) == 0; {
	case err != nil:
		return nil, nil, fmt.Errorf("%w: %w", idempotency.ErrInProgress, err) // the next request tries to find out the outcome
	case !known:
		return nil, nil, idempotency.ErrStepUnknown
	}
	return claim, nil, nil
}

// patience returns the Retry-After for a key in progress: as long as its process has been silent, which means since it took the lease or renewed it
// last, and at most until the lease ends. So the pauses of a client double. It gets the answer of a fast handler early. It needs few tries for a slow
// handler, and for a process that died, because many clients give up after five. It is never asked to come later than the next owner could begin.
func (k *keyed) patience(err error) string {
	busy, ok := errors.AsType[*idempotency.InProgressError](err)
	if !ok || k.cfg.Lease == nil {
		return k.retryAfter
	}
	silent := k.cfg.Lease.ttl() - busy.Rest
	return seconds(max(min(silent, busy.Rest), k.cfg.RetryAfter))
}

// seconds returns d for a header, in whole seconds, rounded up.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

// release lets a retry claim the key at once, and not only after the end of the lease. If another process has the lease
// by now, there is nothing to release.
func (k *keyed) release(ctx context.Context, claim *idempotency.Claim, key idempotency.Key) {
	err := claim.Release(ctx)
	if err != nil && !errors.Is(err, idempotency.ErrLeaseLost) {
		k.log.WarnContext(ctx, "oncebox: a failed request could not release its idempotency key; retries get status 409 until the lease of the key "+
			"ends", "key", key.String(), "error", err)
	}
}

// concludeLeased answers the client when the handler has run and its answer could not be stored.
func (k *keyed) concludeLeased(ctx context.Context, e *exchange, key idempotency.Key, err error) (*answer, string) {
	k.log.ErrorContext(ctx, "oncebox: a request under a lease was executed, but its answer could not be stored; the client gets an error and may retry "+
		"with the same key", "key", key.String(),
		"method", e.r.Method, "route", e.r.Pattern, "error", err)
	p, outcome := answerNotStored(), outcomeFailed
	switch {
	case errors.Is(err, errNotHeld):
		p = answerNotHeld(k.undone())
	case errors.Is(err, idempotency.ErrLeaseLost):
		p, outcome = inProgress(), outcomeLost
	case errors.Is(err, idempotency.ErrStepUnknown):
		p, outcome = keyUnknown(k.findsOut()), outcomeUnknown
	}
	return p.answerTo(err, e.w, k.retryAfter), outcome
}

// undone returns the sentence about the work of a handler whose answer cannot be sent: it was rolled back, or it was not.
func (k *keyed) undone() string {
	if k.cfg.Lease != nil {
		return workFailed
	}
	return workUndone
}

// findsOut reports whether the service can find out the outcome of an unknown step by itself, so that a retry makes sense.
func (k *keyed) findsOut() bool { return k.cfg.Lease != nil && k.cfg.Lease.Recover != nil }
