package idempotency

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// renewClaim also renews one that has ended, as long as nobody has taken it over. A key does not expire while it is claimed.
const renewClaim = `UPDATE {schema}.idempotency_keys
SET locked_until = clock_timestamp() + $4::interval, expires_at = greatest(expires_at, clock_timestamp() + $4::interval)
WHERE key_hash = $1 AND owner = $2::uuid AND epoch = $3 AND state = 'claimed'`

// renewalGrace is how long a renewal may take still when fn has ended. One that hangs, or waits for a connection, must not hold the
// answer back; one that is given up costs its connection.
const renewalGrace = 100 * time.Millisecond

type claimKey struct{}

// Run calls fn while the lease is renewed, every third of its length, over a connection of the pool. [Step] and its siblings work
// in the context that fn gets, which is one of [NewContext] as well. When the lease is lost, or has ended as far as this process
// can know, that context is cancelled with the cause [ErrLeaseLost], and Run returns that together with fn's error, whatever it
// was. If much of the lease is gone already, it is renewed first, and fn is not called if that is refused. A panic goes on. The
// claim is neither completed nor released.
func (c *Claim) Run(ctx context.Context, fn func(ctx context.Context) error) error {
	if len(c.unknown) > 0 {
		return fmt.Errorf("idempotency: run key %s: %w", c.key, ErrStepUnknown)
	}
	return c.Keep(ctx, func(ctx context.Context) error {
		return fn(NewContext(context.WithValue(ctx, claimKey{}, c), c.key.Outside()))
	})
}

// Keep is [Claim.Run] for what has to be found out before: there are no steps in its context, and it may be called while some are
// unknown.
func (c *Claim) Keep(ctx context.Context, fn func(ctx context.Context) error) error {
	if time.Since(c.since) >= c.lease/3 {
		if err := c.renewFirst(ctx); err != nil {
			return fmt.Errorf("idempotency: renew the lease of key %s: %w", c.key, err)
		}
	}
	ctx, c.lose = context.WithCancelCause(ctx)
	end := time.AfterFunc(time.Until(c.since.Add(c.lease)), func() { c.lost(ctx) })
	defer end.Stop()
	var renewing sync.WaitGroup
	renewing.Go(func() { c.renew(ctx, end) })
	defer renewing.Wait()
	defer c.lose(nil)
	err := fn(ctx)
	if errors.Is(context.Cause(ctx), ErrLeaseLost) && !errors.Is(err, ErrLeaseLost) {
		return errors.Join(ErrLeaseLost, err)
	}
	return err
}

// renewFirst renews the lease before anything is done under it. It may have ended: nobody else may have wanted it.
func (c *Claim) renewFirst(ctx context.Context) error {
	renewed := false
	err := c.insist(ctx, func(ctx context.Context) (err error) {
		renewed, err = c.renewOnce(ctx)
		return err
	})
	if err == nil && renewed {
		return nil
	}
	return errors.Join(ErrLeaseLost, err)
}

// renew keeps the lease until fn has ended, or it is lost. The timer fires when it ends.
func (c *Claim) renew(ctx context.Context, end *time.Timer) {
	pause := time.Until(c.since.Add(c.lease / 3))
	for backoff.Wait(ctx, pause) == nil {
		// Not ctx: a statement that is given up closes its connection, and fn may just have ended. One that hangs leaves time for
		// another.
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.lease/3)
		stop := context.AfterFunc(ctx, func() { time.AfterFunc(renewalGrace, cancel) })
		renewed, err := c.renewOnce(bounded)
		stop()
		cancel()
		switch {
		case err == nil && renewed:
			end.Reset(time.Until(c.since.Add(c.lease)))
			pause = time.Until(c.since.Add(c.lease / 3))
		case err == nil:
			c.lost(ctx)
		case ctx.Err() != nil: // it was given up
		default:
			pause = c.lease / 10
			c.store.log.WarnContext(ctx, "oncebox: the lease of an idempotency key could not be renewed, it is tried again until it ends",
				"key", c.key.String(), "error", err)
		}
	}
}

// renewOnce tells whether the claim is ours still.
//
// Durations are measured here and moments are the database's. A renewal counts from when it was sent, so that nobody else
// believes the lease to have ended while this process believes the opposite.
func (c *Claim) renewOnce(ctx context.Context) (bool, error) {
	began := time.Now()
	renewed, err := c.store.run.Exec(ctx, c.db, renewClaim, append(c.fence(), c.lease)...)
	if err != nil || renewed == 0 {
		return false, err
	}
	c.since = began
	return true, nil
}

func (c *Claim) lost(ctx context.Context) {
	c.store.log.WarnContext(ctx, "oncebox: the lease of an idempotency key was lost, what runs under it is told to end", "key", c.key.String())
	c.lose(ErrLeaseLost)
}

// insist repeats what must be written down now, also if fn was told to end, and over a connection that breaks.
func (c *Claim) insist(ctx context.Context, write func(ctx context.Context) error) error {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.lease)
	defer cancel()
	for attempt := 1; ; attempt++ {
		err := write(bounded)
		if err == nil || !pgsql.IsConnectionError(err) ||
			backoff.Wait(bounded, backoff.Jitter(backoff.Exponential(attempt, 10*time.Millisecond, time.Second))) != nil {
			return err
		}
	}
}
