package idempotency

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/calls"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/steps"
)

const (
	loadSteps = `SELECT name, result FROM {schema}.idempotency_step WHERE key_hash = $1 AND result IS NOT NULL`
	loadStep  = `SELECT result FROM {schema}.idempotency_step WHERE key_hash = $1 AND name = $2 AND result IS NOT NULL`

	// storeStep stores nothing for a claim that has lost the lease. It locks the key, so that a process that takes it over waits, and then sees the
	// step. The same owner may repeat it, because it may not know whether the first one was committed. $6 is like $9 of completeClaim.
	storeStep = `INSERT INTO {schema}.idempotency_step (key_hash, name, epoch, result)
SELECT k.key_hash, $4, k.epoch, $5::json FROM {schema}.idempotency_keys k
WHERE k.key_hash = $1 AND k.owner = $2::uuid AND k.epoch = $3 AND k.state = 'claimed'
    AND CASE WHEN $6::text <> '' THEN set_config('lock_timeout', $6, true) <> '' ELSE true END FOR SHARE
ON CONFLICT (key_hash, name) DO UPDATE SET result = excluded.result`
)

// runner runs step.Call under the claim of its context.
type runner struct{}

// Step implements steps.Runner.
func (runner) Step(ctx context.Context, name string, result any, call func(ctx context.Context, key string) error) error {
	c, err := beginStep(ctx, "Call", name)
	if err != nil {
		return err
	}
	if stored, done := c.steps.Done(name); done {
		return decodeStep("Call", name, stored, result)
	}
	return c.steps.Run(name, func() error {
		if err := call(calls.Within(ctx, name), c.stepKey(name)); err != nil {
			return err
		}
		encoded, err := encodeStep("Call", name, result)
		if err != nil {
			return err
		}
		// Without the result the call is made again.
		return c.lease.Insist(ctx, func(ctx context.Context) error { return c.storeStep(steps.Storing(ctx), c.db, name, encoded) })
	})
}

// StepTx calls fn and marks the step as done in the transaction tx, in which fn works: its writes there happen once for this idempotency key,
// whatever becomes of the request. name is like that of step.Call, and must differ from the names of all other steps; a second StepTx with the same
// name returns the result of the first.
//
// An error, of fn or [ErrLeaseLost], means that tx must be rolled back. From the end of StepTx to COMMIT the lease is not renewed and nobody can
// take over the request, so call it late in tx.
func StepTx[T any](ctx context.Context, tx bun.IDB, name string, fn func(ctx context.Context) (T, error)) (result T, err error) {
	if !isTx(tx) {
		return result, fmt.Errorf("idempotency: StepTx %q needs a transaction: give it the bun.Tx in which fn works", name)
	}
	c, err := claimOf(ctx, "StepTx", name)
	if err != nil {
		return result, err
	}
	var stored []byte
	// Read it from the database and not from memory: only the database knows whether an earlier transaction was committed.
	err = c.store.run.QueryRow(ctx, tx, loadStep, []any{c.key.hash[:], name}, &stored)
	switch {
	case err == nil:
		return result, decodeStep("StepTx", name, stored, &result)
	case !errors.Is(err, sql.ErrNoRows):
		return result, fmt.Errorf("idempotency: StepTx %q: look whether it is done: %w", name, pgerr.Explain(err))
	}
	if result, err = fn(calls.Within(ctx, name)); err != nil {
		return result, err
	}
	encoded, err := encodeStep("StepTx", name, result)
	if err != nil {
		return result, err
	}
	// Last: until COMMIT it keeps the lease from being renewed.
	return result, c.storeStep(ctx, tx, name, encoded)
}

// claimOf returns the claim under which ctx runs.
func claimOf(ctx context.Context, function, name string) (*Claim, error) {
	c, ok := ctx.Value(claimKey{}).(*Claim)
	switch {
	case !ok:
		return nil, fmt.Errorf("idempotency: %s %q was called without a claim: "+
			"pass the context that Claim.Run gives its function, or the context of the request in a handler under a lease", function, name)
	case name == "" || len(name) > MaxKey || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return nil, fmt.Errorf("idempotency: %s: the name has to have 1 to %d bytes of text without control characters", function, MaxKey)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("idempotency: %s %q: %w", function, name, context.Cause(ctx))
	}
	return c, nil
}

// beginStep is claimOf for a step whose name and result are also kept in memory.
func beginStep(ctx context.Context, function, name string) (*Claim, error) {
	c, err := claimOf(ctx, function, name)
	if err != nil {
		return nil, err
	}
	if err := c.steps.Load(func() (map[string][]byte, error) { return c.loadSteps(ctx) }); err != nil {
		return nil, fmt.Errorf("idempotency: %s %q: look for what earlier runs have done: %w", function, name, pgerr.Explain(err))
	}
	switch {
	case c.steps.Use(name):
		return c, nil
	case c.begun.Has(name):
		return nil, fmt.Errorf("idempotency: %s %q: %w", function, name, ErrStepUnknown)
	default:
		return nil, fmt.Errorf("idempotency: %s %q: the name was used before: give each step of the request its own", function, name)
	}
}

// loadSteps returns the results that earlier claims have stored.
func (c *Claim) loadSteps(ctx context.Context) (map[string][]byte, error) {
	if c.epoch == 1 {
		return map[string][]byte{}, nil // there was no earlier claim
	}
	return pgsql.Map[[]byte](c.store.run.Query(ctx, c.db, loadSteps, c.key.hash[:]))
}

// stepKey must never change: the other side recognizes earlier calls by it.
func (c *Claim) stepKey(name string) string {
	return derive("oncebox.idempotency.step.1", string(c.key.hash[:]), name)
}

func (c *Claim) storeStep(ctx context.Context, db bun.IDB, name string, result []byte) error {
	n, err := c.store.confirmed.Exec(ctx, db, storeStep, append(c.fence(), name, string(result), c.patience(db))...)
	switch {
	case err != nil:
		return fmt.Errorf("idempotency: store the result of step %q: %w", name, pgerr.Explain(err))
	case n == 0:
		c.lease.Lose()
		return ErrLeaseLost
	}
	return nil
}

func encodeStep(function, name string, result any) ([]byte, error) {
	encoded, err := json.Marshal(result)
	if err != nil {
		return nil, fmt.Errorf("idempotency: %s %q: encode its result: %w", function, name, err)
	}
	return encoded, nil
}

func decodeStep(function, name string, stored []byte, result any) error {
	if err := json.Unmarshal(stored, result); err != nil {
		return fmt.Errorf("idempotency: %s %q: decode the result of an earlier run: %w", function, name, err)
	}
	return nil
}
