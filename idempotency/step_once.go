package idempotency

import (
	"context"
	"errors"
	"fmt"

	"github.com/oncebox/oncebox/internal/calls"
	"github.com/oncebox/oncebox/internal/pgsql"
)

var (
	// ErrStepUnknown means that a [StepOnce] was begun and that nobody knows whether it was done. Nothing goes on with the key
	// until that is found out: by [WithRecovery], or by an operator with [Store.Resolve].
	ErrStepUnknown = errors.New("idempotency: the outcome of a step is unknown")

	// ErrNotDone is for the fn of a [StepOnce]: an error that wraps it says that the thing was for certain not done, because the
	// other side refused it or was never reached.
	ErrNotDone = errors.New("idempotency: the step was not done")
)

// beginOnce commits that a step is about to be done. From here on the key does not expire. The same owner may say it again: it does
// not know whether it did. It waits for a lock on the key for 3 s, no longer: the condition is looked at before the row is locked.
const beginOnce = `WITH held AS (
    UPDATE {schema}.idempotency_keys SET expires_at = 'infinity', request = nullif($5::text, ''), caller = nullif($6::text, '')
    WHERE key_hash = $1 AND owner = $2::uuid AND epoch = $3 AND state = 'claimed' AND set_config('lock_timeout', '3s', true) <> ''
    RETURNING key_hash, epoch
)
INSERT INTO {schema}.idempotency_step AS s (key_hash, name, epoch, label) SELECT key_hash, $4, epoch, nullif($7::text, '') FROM held
ON CONFLICT (key_hash, name) DO UPDATE SET epoch = excluded.epoch WHERE s.result IS NULL AND s.epoch = excluded.epoch`

// StepOnce is [Step] for other sides that know no keys, where a second call would be a second deed. That it begins is committed
// first. If it was begun and has no result, because its process died, it is not called again: its outcome is unknown.
//
// An error of fn is an unknown outcome too, as a call that was not answered may have been heard, unless it wraps [ErrNotDone]. The
// error that is returned then wraps both fn's and [ErrStepUnknown]; the key can be neither completed nor worked on until it is
// resolved.
//
// [WithLabel] says what the step is about, for who has to find out what became of it.
//
// It must not be called within the transaction of a [StepTx], which keeps the key locked until it ends: that is an error, and fn is
// not called.
func StepOnce[T any](ctx context.Context, name string, fn func(ctx context.Context) (T, error)) (result T, err error) {
	c, err := beginStep(ctx, "StepOnce", name)
	if err != nil {
		return result, err
	}
	if stored, done := c.steps.done[name]; done {
		return result, decodeStep("StepOnce", name, stored, &result)
	}
	err = c.insist(ctx, func(ctx context.Context) error { return c.beginOnce(ctx, name) })
	if err != nil {
		c.steps.release(name) // it was not done
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

// WithLabel returns a context in which a [StepOnce] has a label: the id of the order that is paid, for example. It is what an operator looks for
// at the other side, and is stored in clear while the outcome of the step is open, so it should be no secret. Of more than 255 bytes the
// beginning is kept.
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
	case pgsql.Code(err) == pgsql.CodeLockNotAvailable:
		return fmt.Errorf("idempotency: begin step %q: the key is locked by a transaction that has not ended: "+
			"call StepOnce before the StepTx of that transaction, or after its COMMIT: %w", name, err)
	case err != nil:
		return fmt.Errorf("idempotency: begin step %q: %w", name, pgsql.Explain(err))
	case n == 0:
		c.lease.Lose()
		return ErrLeaseLost
	}
	c.steps.begin(name)
	return nil
}

// settleOnce writes down what became of the step, nil if it was not done. It is the truth whichever process has the lease by now, so it is
// not asked for: a key that has become unknown meanwhile is known again.
func (c *Claim) settleOnce(ctx context.Context, name string, result any) error {
	var settled bool
	err := c.insist(ctx, func(ctx context.Context) (err error) {
		settled, err = c.store.settle(ctx, c.db, settleStep, c.key.hash[:], name, c.epoch, result)
		return err
	})
	if err == nil && !settled {
		// It was written down before the connection broke, or somebody else has resolved it.
		settled, err = c.holds(ctx)
	}
	if err != nil {
		return err
	}
	if !settled {
		c.lease.Lose()
		return ErrLeaseLost
	}
	c.steps.settle(name)
	if result == nil {
		c.steps.release(name)
	}
	return nil
}

const holdsClaim = `SELECT count(*) FROM {schema}.idempotency_keys WHERE key_hash = $1 AND owner = $2::uuid AND epoch = $3 AND state = 'claimed'`

func (c *Claim) holds(ctx context.Context) (bool, error) {
	var n int
	err := c.insist(ctx, func(ctx context.Context) error { return c.store.run.QueryRow(ctx, c.db, holdsClaim, c.fence(), &n) })
	return n == 1, err
}

func (s *steps) begin(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.once == nil {
		s.once = map[string]struct{}{}
	}
	s.once[name] = struct{}{}
}

func (s *steps) settle(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.once, name)
}

func (s *steps) unknown(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, open := s.once[name]
	return open
}

// open reports whether the outcome of a step is unknown.
func (s *steps) open() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.once) > 0
}
