package idempotency

import (
	"context"
	"errors"
	"fmt"

	"github.com/oncebox/oncebox/internal/calls"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/steps"
)

var (
	// ErrStepUnknown means that a [StepOnce] was begun and that nobody knows whether it was done. No request with the key is executed until that is
	// found out: by [WithRecovery], or by an operator with [Store.Resolve].
	ErrStepUnknown = errors.New("idempotency: the outcome of a step is unknown")

	// ErrNotDone is for the fn of a [StepOnce]. An error that wraps it says that the call had certainly no effect, because the other side refused it
	// or was never reached.
	ErrNotDone = errors.New("idempotency: the step was not done")
)

// beginOnce commits that a step is about to be done. From here on the key does not expire. The same owner may repeat it, because it may not know
// whether the first one was committed. It waits for a lock on the key for at most 3 s: the condition that sets lock_timeout is evaluated before the
// row is locked.
const beginOnce = `WITH held AS (
    UPDATE {schema}.idempotency_keys SET expires_at = 'infinity', request = nullif($5::text, ''), caller = nullif($6::text, '')
    WHERE key_hash = $1 AND owner = $2::uuid AND epoch = $3 AND state = 'claimed' AND set_config('lock_timeout', '3s', true) <> ''
    RETURNING key_hash, epoch
)
INSERT INTO {schema}.idempotency_step AS s (key_hash, name, epoch, label) SELECT key_hash, $4, epoch, nullif($7::text, '') FROM held
ON CONFLICT (key_hash, name) DO UPDATE SET epoch = excluded.epoch WHERE s.result IS NULL AND s.epoch = excluded.epoch`

// StepOnce is step.Call for other sides that know no keys, where a second call would have a second effect. The begin of the step is committed before
// the call. If the step was begun and has no result, because its process died, it is not called again: its outcome is unknown.
//
// If fn returns an error, the outcome is unknown too, because a call without an answer may have had its effect. The returned error then wraps both
// fn's error and [ErrStepUnknown], and the key can be neither completed nor worked on until the step is resolved. If the error wraps [ErrNotDone],
// the step may be called again.
//
// Use [WithLabel] to describe the step for the operator who has to find out its outcome.
//
// It must not be called within the transaction of a [StepTx], which keeps the key locked until it ends: then it returns an error, and fn is not
// called.
func StepOnce[T any](ctx context.Context, name string, fn func(ctx context.Context) (T, error)) (result T, err error) {
	c, err := beginStep(ctx, "StepOnce", name)
	if err != nil {
		return result, err
	}
	if stored, done := c.steps.Done(name); done {
		return result, decodeStep("StepOnce", name, stored, &result)
	}
	err = c.lease.Insist(ctx, func(ctx context.Context) error { return c.beginOnce(ctx, name) })
	if err != nil {
		c.steps.Release(name) // it was not done
		return result, err
	}
	if result, err = fn(calls.Within(ctx, name)); err != nil {
		if !errors.Is(err, ErrNotDone) {
			return result, fmt.Errorf("idempotency: StepOnce %q: %w: %w", name, ErrStepUnknown, err)
		}
		return result, errors.Join(err, c.settleOnce(ctx, name, nil))
	}
	encoded, err := encodeStep("StepOnce", name, result)
	if err != nil {
		return result, fmt.Errorf("%w: %w", ErrStepUnknown, err)
	}
	return result, c.settleOnce(ctx, name, string(encoded))
}

type labelKey struct{}

// WithLabel returns a context in which a [StepOnce] has a label: the id of the order that is paid, for example. An operator searches for it at the
// other side. It is stored in clear while the outcome of the step is open, so it should not be secret. It is cut to 255 bytes.
func WithLabel(ctx context.Context, label string) context.Context {
	return context.WithValue(ctx, labelKey{}, shown(label))
}

func labelOf(ctx context.Context) string {
	label, _ := ctx.Value(labelKey{}).(string)
	return label
}

func (c *Claim) beginOnce(ctx context.Context, name string) error {
	n, err := c.store.confirmed.Exec(ctx, c.db, beginOnce, append(c.fence(), name, c.key.request, c.key.caller, labelOf(ctx))...)
	switch {
	case pgerr.Code(err) == pgerr.LockNotAvailable:
		return fmt.Errorf("idempotency: begin step %q: the key is locked by a transaction that has not ended: "+
			"call StepOnce before the StepTx of that transaction, or after its COMMIT: %w", name, err)
	case err != nil:
		return fmt.Errorf("idempotency: begin step %q: %w", name, pgerr.Explain(err))
	case n == 0:
		c.lease.Lose()
		return ErrLeaseLost
	}
	c.begun.Add(name)
	return nil
}

// settleOnce stores the outcome of the step: its result, or nil if it was not done. It does not check the lease, because the outcome is true
// whatever process holds the lease by now. A key that has become unknown meanwhile becomes known again.
func (c *Claim) settleOnce(ctx context.Context, name string, result any) error {
	var settled bool
	err := c.lease.Insist(ctx, func(ctx context.Context) (err error) {
		settled, err = c.store.settle(steps.Storing(ctx), c.db, settleStep, c.key.hash[:], name, c.epoch, result)
		return err
	})
	if err == nil && !settled {
		// It was stored before the connection broke, or somebody else has resolved it.
		settled, err = c.holds(ctx)
	}
	if err != nil {
		return err
	}
	if !settled {
		c.lease.Lose()
		return ErrLeaseLost
	}
	c.begun.Remove(name)
	if result == nil {
		c.steps.Release(name)
	}
	return nil
}

const holdsClaim = `SELECT count(*) FROM {schema}.idempotency_keys WHERE key_hash = $1 AND owner = $2::uuid AND epoch = $3 AND state = 'claimed'`

func (c *Claim) holds(ctx context.Context) (bool, error) {
	var n int
	err := c.lease.Insist(ctx, func(ctx context.Context) error { return c.store.run.QueryRow(ctx, c.db, holdsClaim, c.fence(), &n) })
	return n == 1, err
}
