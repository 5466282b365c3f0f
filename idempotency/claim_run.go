package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/internal/lease"
	"github.com/oncebox/oncebox/internal/steps"
)

// renewClaim also renews a lease that has ended, as long as nobody has taken it over. A key does not expire while it is claimed.
const renewClaim = `UPDATE {schema}.idempotency_keys
SET locked_until = clock_timestamp() + $4::interval, expires_at = greatest(expires_at, clock_timestamp() + $4::interval)
WHERE key_hash = $1 AND owner = $2::uuid AND epoch = $3 AND state = 'claimed'`

type claimKey struct{}

// Run calls fn while the lease is renewed, every third of its length, over a connection of the pool. step.Call, [StepOnce] and [StepTx] work in the
// context that fn gets, which also counts calls as that of [NewContext] does. When the lease is lost, or has ended as far as this process can know,
// that context is cancelled with the cause [ErrLeaseLost], and Run returns this error together with fn's error. If much of the lease has passed
// already, it is renewed first, and fn is not called if the renewal is refused. A panic goes on. The claim is neither completed nor released.
func (c *Claim) Run(ctx context.Context, fn func(ctx context.Context) error) error {
	if len(c.unknown) > 0 {
		return fmt.Errorf("idempotency: run key %s: %w", c.key, ErrStepUnknown)
	}
	return c.Keep(ctx, func(ctx context.Context) error {
		ctx = steps.WithRunner(context.WithValue(ctx, claimKey{}, c), runner{})
		return fn(NewContext(ctx, c.key.Outside()))
	})
}

// Keep is like [Claim.Run], for finding out the outcome of unknown steps: it may be called while there are such steps, and its context has no
// steps.
func (c *Claim) Keep(ctx context.Context, fn func(ctx context.Context) error) error {
	if c.lease.Worn() {
		if err := c.renewFirst(ctx); err != nil {
			return fmt.Errorf("idempotency: renew the lease of key %s: %w", c.key, err)
		}
	}
	lost, err := c.lease.Hold(ctx, fn)
	if lost && !errors.Is(err, ErrLeaseLost) {
		return errors.Join(ErrLeaseLost, err)
	}
	return err
}

// hold begins the lease of a new claim, whose statement was sent at the moment since.
func (c *Claim) hold(since time.Time) {
	c.lease = lease.New(&lease.Terms{
		TTL: c.ttl, Lost: ErrLeaseLost, Renew: c.renew,
		Log: c.store.log, What: "an idempotency key", Attrs: []any{"key", c.key.String()},
	}, since)
}

// renewFirst renews the lease before the work begins. That works even after the lease has ended, as long as no other process has claimed the key.
func (c *Claim) renewFirst(ctx context.Context) error {
	renewed := false
	err := c.lease.Insist(ctx, func(ctx context.Context) (err error) {
		renewed, err = c.lease.Renew(ctx)
		return err
	})
	if err == nil && renewed {
		return nil
	}
	return errors.Join(ErrLeaseLost, err)
}

func (c *Claim) renew(ctx context.Context) (ours bool, err error) {
	renewed, err := c.store.run.Exec(ctx, c.db, renewClaim, append(c.fence(), c.ttl)...)
	return renewed > 0, err
}
