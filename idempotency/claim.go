package idempotency

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/lease"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/steps"
)

// DefaultLease is how long the owner of a claim may be silent before another process takes it over.
const DefaultLease = 90 * time.Second

// ErrLeaseLost means that the owner of a claim was silent for so long that another process may have taken it over. The context of [Claim.Run] is
// cancelled with this cause, and all writes under the claim return it from then on.
var ErrLeaseLost = errors.New("idempotency: the lease of the key is lost: another process may have taken the request over")

// InProgressError is [ErrInProgress] for a key that is claimed.
type InProgressError struct {
	// Rest is how long the lease lasts unless it is renewed: when the owner is dead, a retry after Rest takes the key over.
	Rest time.Duration
}

func (e *InProgressError) Error() string {
	return fmt.Sprintf("%s: its lease lasts %s at most unless it is renewed", ErrInProgress.Error(), e.Rest)
}

// Is makes it an [ErrInProgress].
func (*InProgressError) Is(target error) bool { return target == ErrInProgress }

const (
	stateUnknown = "unknown"

	claim = `SELECT claimed, coalesce(epoch, 0), coalesce(rest, 0), state, fingerprint_tag, fingerprint, status, headers, omitted, body
FROM {schema}.idempotency_claim($1, $2, $3, $4, $5, $6::uuid, $7::interval, $8, $9)`

	// claimTries is how often a claim is tried if another one was faster. Its statement fails then if the default isolation is stricter than READ
	// COMMITTED.
	claimTries = 5
)

// Claim is the right to work on a key, committed in the database and limited in time. It outlives transactions, so its owner may call other
// services meanwhile. [Store.Claim] makes it.
type Claim struct {
	store *Store
	db    *bun.DB
	key   Key

	owner string
	epoch int
	ttl   time.Duration // of the lease
	lease *lease.Lease

	steps   steps.Set
	begun   steps.Names // by StepOnce, and the outcome is not known yet
	unknown []Unknown   // of earlier claims
}

// ClaimOption changes a claim.
type ClaimOption func(*claimOptions)

type claimOptions struct {
	lease   time.Duration
	recover bool
}

// WithLease sets how long the owner may be silent. Default: [DefaultLease].
func WithLease(d time.Duration) ClaimOption { return func(o *claimOptions) { o.lease = d } }

// WithRecovery claims a key even if the outcome of a step is unknown, in order to find it out: see [Claim.Unknown].
func WithRecovery() ClaimOption { return func(o *claimOptions) { o.recover = true } }

// Claim claims a key, for work that no transaction can undo. db is the pool: the claim is committed when Claim returns. If it returns a claim, the
// caller does the work within [Claim.Run], and then calls [Claim.Complete] or [Claim.Release]. If it returns a response, the work was done before.
//
// The errors, in the order of the checks: [ErrMismatch], also while the key is claimed; [*InProgressError], which is an ErrInProgress;
// [ErrStepUnknown]. A claim whose lease has ended is taken over, with the steps that are done.
func (s *Store) Claim(ctx context.Context, db bun.IDB, key Key, fp Fingerprint, opts ...ClaimOption) (*Claim, *Response, error) {
	pool, ok := db.(*bun.DB)
	if !ok {
		return nil, nil, errors.New("idempotency: Claim was called inside a transaction, where other requests would not see the claim: call it with the pool")
	}
	o := claimOptions{lease: DefaultLease}
	for _, opt := range opts {
		opt(&o)
	}
	c := &Claim{store: s, db: pool, key: key, owner: uuid.NewString(), ttl: o.lease}
	var (
		claimed bool
		rest    float64
		row     record
		since   time.Time
		err     error
	)
	for range claimTries {
		since = time.Now()
		err = s.run.QueryRow(ctx, pool, claim, []any{key.hash[:], key.tenant, key.principal.column(), fp.Tag, fp.Sum[:], c.owner, o.lease,
			s.cfg.TTL.Seconds(), o.recover}, append([]any{&claimed, &c.epoch, &rest}, row.dest()...)...)
		if pgerr.Code(err) != pgerr.Serialization {
			break
		}
	}
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("idempotency: claim key %s: %w", key, pgerr.Explain(err))
	case !claimed:
		resp, err := row.refusal(fp, time.Duration(rest*float64(time.Second)))
		if resp != nil {
			s.recent.mark(key)
		}
		return nil, resp, err
	}
	c.hold(since)
	if o.recover {
		if c.unknown, err = s.open(ctx, pool, key); err != nil {
			return nil, nil, errors.Join(err, c.Release(ctx))
		}
	}
	return c, nil, nil
}

// refusal returns the result of a Claim whose row cannot be claimed.
func (r *record) refusal(fp Fingerprint, rest time.Duration) (*Response, error) {
	switch {
	case r.print().differs(fp):
		return nil, ErrMismatch
	case r.state.String == stateCompleted:
		return r.answer(fp)
	case r.state.String == stateUnknown:
		return nil, ErrStepUnknown
	default:
		return nil, &InProgressError{Rest: max(rest, 0)}
	}
}

const (
	// completeClaim can be repeated without harm, because the owner may not know whether the first one was committed. It returns whether it has
	// written. $9 is the lock_timeout for the row of the key, "" in the caller's own transaction.
	completeClaim = `WITH done AS (
    UPDATE {schema}.idempotency_keys SET state = 'completed', status = $4, headers = $5::json, body = $6, omitted = $7,
        completed_at = t.now, locked_until = NULL, request = NULL, caller = NULL,
        expires_at = CASE WHEN $8::float8 < 0 THEN 'infinity' ELSE t.now + make_interval(secs => $8::float8) END
    FROM (SELECT clock_timestamp() AS now) t
    WHERE key_hash = $1 AND owner = $2::uuid AND epoch = $3 AND state = 'claimed'
        AND CASE WHEN $9::text <> '' THEN set_config('lock_timeout', $9, true) <> '' ELSE true END
    RETURNING key_hash
), steps AS (DELETE FROM {schema}.idempotency_step s USING done WHERE s.key_hash = done.key_hash)
SELECT true FROM done
UNION ALL
SELECT false FROM {schema}.idempotency_keys WHERE key_hash = $1 AND owner = $2::uuid AND epoch = $3 AND state = 'completed'`

	// releaseClaim removes the owner, because a renewal that was given up may still be on its way.
	releaseClaim = `UPDATE {schema}.idempotency_keys k SET locked_until = clock_timestamp(), owner = NULL, state = CASE WHEN EXISTS (
        SELECT FROM {schema}.idempotency_step s WHERE s.key_hash = k.key_hash AND s.result IS NULL) THEN 'unknown' ELSE 'claimed' END
WHERE k.key_hash = $1 AND k.owner = $2::uuid AND k.epoch = $3 AND k.state = 'claimed'`

	// releaseTimeout limits the attempt to end a lease early. The lease ends by itself as well.
	releaseTimeout = 5 * time.Second
)

// Complete stores the answer and forgets the steps. tx is a transaction of the caller's work, or the pool. With the pool it works even if ctx is
// done, and is repeated if a connection breaks. [ErrLeaseLost]: another process may have taken over the request, nothing was stored, and tx must be
// rolled back. [ErrStepUnknown]: the outcome of a step is unknown, and so is that of the work. A repeated Complete changes nothing.
func (c *Claim) Complete(ctx context.Context, tx bun.IDB, resp Response) error {
	if !c.begun.IsEmpty() {
		return fmt.Errorf("idempotency: complete key %s: %w", c.key, ErrStepUnknown)
	}
	headers, body, omitted, err := resp.columns()
	if err != nil {
		return err
	}
	args := append(c.fence(), resp.Status, headers, body, omitted, c.store.cfg.TTL.Seconds(), c.patience(tx))
	pool, committed := tx.(*bun.DB)
	write := func(ctx context.Context) error {
		var written bool
		err := c.store.confirmed.QueryRow(ctx, tx, completeClaim, args, &written)
		if err == nil && committed && !written {
			err = pgsql.AwaitStandbyOn(ctx, pool)
		}
		return err
	}
	if committed {
		err = c.lease.Insist(ctx, write)
	} else {
		err = write(ctx)
	}
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("idempotency: complete key %s: %w", c.key, ErrLeaseLost)
	case err != nil:
		return fmt.Errorf("idempotency: complete key %s: %w", c.key, pgerr.Explain(err))
	}
	if committed {
		c.store.recent.mark(c.key)
	}
	return nil
}

// Release ends the lease at once, also if ctx is done. The steps stay, and so does the fingerprint: the next request with the key goes on where
// this one ended, and a different one is a mismatch. A key with a step whose outcome is unknown becomes unknown. Later writes under the claim are
// refused. [ErrLeaseLost]: there was nothing to release.
func (c *Claim) Release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	n, err := c.store.run.Exec(ctx, c.db, releaseClaim, c.fence()...)
	switch {
	case err != nil:
		return fmt.Errorf("idempotency: release the claim of key %s: %w", c.key, pgerr.Explain(err))
	case n == 0:
		return fmt.Errorf("idempotency: release the claim of key %s: %w", c.key, ErrLeaseLost)
	}
	return nil
}

// patience returns the lock_timeout of a confirmed statement: the time for which its caller waits. The statement is not cancelled when the caller
// gives up, so it has to end by itself. "" leaves the lock_timeout of the caller's transaction.
func (c *Claim) patience(db bun.IDB) string {
	if isTx(db) {
		return ""
	}
	return strconv.FormatInt(max(c.ttl.Milliseconds(), 1), 10)
}

// fence returns the first arguments of every statement that writes under the claim.
func (c *Claim) fence() []any { return []any{c.key.hash[:], c.owner, c.epoch} }
