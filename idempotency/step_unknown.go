package idempotency

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
)

const (
	unknownColumns = `encode(s.key_hash, 'hex'), k.tenant_id, s.name, s.epoch, s.begun_at, coalesce(k.request, ''), ` + principalShown + `,
	coalesce(k.caller, ''), coalesce(s.label, '')`

	// principalShown is the beginning of the hash, enough to see which requests belong to one principal.
	principalShown = `coalesce(left(encode(k.principal_hash, 'hex'), 16), '')`

	openSteps = `SELECT ` + unknownColumns + `
FROM {schema}.idempotency_step s JOIN {schema}.idempotency_keys k ON k.key_hash = s.key_hash
WHERE s.result IS NULL AND s.key_hash = $1 ORDER BY s.begun_at, s.name`

	unknownSteps = `SELECT ` + unknownColumns + `
FROM {schema}.idempotency_step s JOIN {schema}.idempotency_keys k ON k.key_hash = s.key_hash
WHERE s.result IS NULL AND (k.state = 'unknown' OR k.locked_until <= clock_timestamp()) AND ($1::text = '' OR k.tenant_id = $1::text)
ORDER BY s.begun_at, s.key_hash, s.name LIMIT $2`

	settleStep = `SELECT {schema}.idempotency_settle_step($1, $2, $3, $4::json, $5, true)`

	// resolveStep settles a step for an operator, and adds an entry to the audit.
	resolveStep = `WITH settled AS MATERIALIZED (
    SELECT {schema}.idempotency_settle_step($1, $2, $3, $4::json, $5, false) AS ok
), audit AS (
    INSERT INTO {schema}.oncebox_audit (part, actor, action, reason, tenant_id, key_hash, step, epoch)
    SELECT 'idempotency', coalesce(nullif($6::text, ''), session_user),
        CASE WHEN $4::json IS NULL THEN '` + string(operator.NotDone) + `' ELSE '` + string(operator.Done) + `' END, $7::text, k.tenant_id, k.key_hash, $2, $3
    FROM settled, {schema}.idempotency_keys k WHERE settled.ok AND k.key_hash = $1
)
SELECT ok FROM settled`
)

// Unknown is a step that was begun and has an unknown outcome.
type Unknown struct {
	// Key is the hash of the scope, in hexadecimal digits.
	Key string
	// Tenant is the tenant of the request, and Request its method and path, cut to 255 bytes. "": the scope had none.
	Tenant, Request string
	// Principal is the beginning of the hash of the principal, the same for all its requests within a tenant, and Caller is [Scope.Caller]. "": the
	// scope was anonymous, or had no Caller.
	Principal, Caller string
	// Step is the name in [StepOnce], and Label the label of [WithLabel].
	Step, Label string
	// Epoch identifies the claim that has begun the step.
	Epoch int
	// BegunAt is when the step was begun, by the clock of the database. A call that was made then may still be on its way.
	BegunAt time.Time
}

// Outcome says whether a step was done, and its result. The zero Outcome means that nobody knows yet.
type Outcome struct {
	known  bool
	result any // JSON text; nil: it was not done
	err    error
}

// StepDone is the outcome of a step that was done. result has the type that [StepOnce] returns.
func StepDone(result any) Outcome {
	encoded, err := encodeStep("StepDone", "", result)
	return Outcome{known: true, result: string(encoded), err: err}
}

// StepNotDone is the outcome of a step that was certainly not done, and that no call on its way will do. The next request does it.
func StepNotDone() Outcome { return Outcome{known: true} }

// Unknown returns the steps that have to be resolved before [Claim.Run]. Only a claim [WithRecovery] has such steps.
func (c *Claim) Unknown() []Unknown { return slices.Clone(c.unknown) }

// Resolve stores the outcome of a step, as the owner of the claim. The zero outcome leaves it unknown.
func (c *Claim) Resolve(ctx context.Context, u Unknown, outcome Outcome) error {
	switch {
	case outcome.err != nil:
		return outcome.err
	case !outcome.known:
		return nil
	}
	held, err := c.holds(ctx)
	if err == nil && !held {
		err = ErrLeaseLost
	}
	if err == nil {
		_, err = c.store.settle(ctx, c.db, settleStep, c.key.hash[:], u.Step, u.Epoch, outcome.result)
	}
	if err == nil {
		// A faster call may have resolved the step differently, and may have begun it again.
		c.unknown, err = c.store.open(ctx, c.db, c.key)
	}
	if err != nil {
		return fmt.Errorf("idempotency: resolve step %q: %w", u.Step, err)
	}
	return nil
}

// Unknown lists the steps with an unknown outcome that nobody is working on, the oldest first: of one tenant, or of all if tenant is "". They stay
// until they are resolved.
func (s *Store) Unknown(ctx context.Context, db bun.IDB, tenant string, limit int) ([]Unknown, error) {
	return s.listUnknown(ctx, db, unknownSteps, tenant, limit)
}

// Resolve stores the outcome of a step that an operator has found out, and adds an entry to the audit: with the Actor, or the user of the database.
// Once no step of its key is unknown, the next request with the key goes on. false: the step was not unknown, or somebody works on it at this
// moment.
func (s *Store) Resolve(ctx context.Context, db bun.IDB, u Unknown, outcome Outcome, by ...operator.By) (bool, error) {
	hash, err := hex.DecodeString(u.Key)
	if err := errors.Join(err, outcome.err); err != nil {
		return false, fmt.Errorf("idempotency: resolve step %q: %w", u.Step, err)
	}
	if !outcome.known {
		return false, fmt.Errorf("idempotency: resolve step %q: use StepDone or StepNotDone", u.Step)
	}
	var who operator.By
	if len(by) > 0 {
		who = by[0]
	}
	settled, err := s.settle(ctx, db, resolveStep, hash, u.Step, u.Epoch, outcome.result, who.Actor, who.Reason)
	if err == nil && settled {
		s.log.InfoContext(ctx, "oncebox: an operator entered the outcome of a step that was unknown", "key", u.Key, "tenant", u.Tenant, "step", u.Step,
			"done", outcome.result != nil)
	}
	return settled, err
}

func (s *Store) open(ctx context.Context, db bun.IDB, key Key) ([]Unknown, error) {
	return s.listUnknown(ctx, db, openSteps, key.hash[:])
}

func (s *Store) listUnknown(ctx context.Context, db bun.IDB, query string, args ...any) (list []Unknown, err error) {
	list, err = pgsql.Collect(s.run.Query(ctx, db, query, args...), func(scan pgsql.Scan, u *Unknown) error {
		return scan(&u.Key, &u.Tenant, &u.Step, &u.Epoch, &u.BegunAt, &u.Request, &u.Principal, &u.Caller, &u.Label)
	})
	if err != nil {
		return nil, fmt.Errorf("idempotency: list unknown steps: %w", pgerr.Explain(err))
	}
	return list, nil
}

func (s *Store) settle(
	ctx context.Context, db bun.IDB, statement string, hash []byte, step string, epoch int, result any, by ...any,
) (settled bool, err error) {
	err = s.run.QueryRow(ctx, db, statement, append([]any{hash, step, epoch, result, s.cfg.TTL.Seconds()}, by...), &settled)
	if err != nil {
		return false, fmt.Errorf("idempotency: settle step %q: %w", step, pgerr.Explain(err))
	}
	return settled, nil
}
