package store

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgsql"
)

const (
	takeLease = `
SELECT outcome, attempts, unended, extract(epoch FROM rest)::float8 FROM {schema}.inbox_take_lease($1::uuid, $2::text, $3::text, $4::text, $5::bigint, $6::uuid,
	$7::interval, $8::bigint, $9::integer)`

	// renewLease also renews a lease whose time is over, unless another process has taken it.
	renewLease = `
UPDATE {schema}.oncebox_lease SET lease_until = clock_timestamp() + $4::interval
WHERE task = 'inbox.message' AND consumer = $1::text AND key_lock = $2::bigint AND owner = $3::uuid`

	// freeLease is also the check that the lease was held to the end: if it deletes no row, another process has taken the lease.
	freeLease = `
DELETE FROM {schema}.oncebox_lease WHERE task = 'inbox.message' AND consumer = $1::text AND key_lock = $2::bigint AND owner = $3::uuid`
)

// The answers to a request for a lease.
const (
	LeaseTaken  = "taken"
	LeaseHeld   = "held"   // another process has it
	LeaseBehind = "behind" // other messages of the key wait
	LeaseGone   = "gone"   // the message was settled before
)

// Lease names the lease of a key.
type Lease struct {
	Consumer string
	Lock     int64
	Token    string // of the try that has the lease
}

// Asked is the answer to a request for a lease. Rest is how long the lease of the other process lasts.
type Asked struct {
	Outcome string
	Tried   Attempts
	Rest    time.Duration
}

// leaseTable has the keys whose messages are handled without a transaction.
type leaseTable struct{ *Handle }

// Take asks for the lease under which a message is handled. seq is the place of a parked message, nil for a message from the broker. more is
// 1 if the try has to be counted, 0 if it was counted before.
func (t leaseTable) Take(ctx context.Context, id Identity, l Lease, seq *int64, more int) (a Asked, err error) {
	var rest float64
	err = t.Count(ctx, takeLease, append(id.Args(), l.Lock, l.Token, t.LeaseTTL, seq, more), &a.Outcome, &a.Tried.N, &a.Tried.Unended, &rest)
	a.Tried.Begun = true
	if err != nil {
		return a, fmt.Errorf("inbox: take the lease of message %s of consumer %s: %w", id.Key, id.Consumer, Explain(err))
	}
	a.Rest = time.Duration(rest * float64(time.Second))
	return a, nil
}

// Renew extends a lease. ours is false if another process has taken it.
func (t leaseTable) Renew(ctx context.Context, l Lease) (ours bool, err error) {
	n, err := t.SQL.Exec(ctx, t.DB(ctx), renewLease, l.Consumer, l.Lock, l.Token, t.LeaseTTL)
	return n > 0, err
}

// Free ends a lease. ours is false if another process has taken it.
func (t leaseTable) Free(ctx context.Context, db bun.IDB, l Lease) (ours bool, err error) {
	n, err := t.SQL.Exec(ctx, db, freeLease, l.Consumer, l.Lock, l.Token)
	return n > 0, err
}

const (
	loadSteps = `
SELECT name, result FROM {schema}.inbox_step
WHERE message_key = $1::uuid AND consumer = $2::text AND tenant_id = $3::text AND source = $4::text`

	// storeStep stores nothing for a handler that has lost the lease. It locks the lease, so a process that takes the lease over waits for
	// this transaction, and then sees the step. ON CONFLICT is for an owner that repeats the statement, because it got no answer to the
	// first.
	storeStep = `
INSERT INTO {schema}.inbox_step (message_key, consumer, tenant_id, source, name, result)
SELECT $1::uuid, $2::text, $3::text, $4::text, $5::text, $6::json
FROM {schema}.oncebox_lease WHERE task = 'inbox.message' AND consumer = $2::text AND key_lock = $7::bigint AND owner = $8::uuid FOR SHARE
ON CONFLICT (message_key, consumer, tenant_id, source, name) DO UPDATE SET result = excluded.result`

	forgetSteps = `
DELETE FROM {schema}.inbox_step WHERE message_key = $1::uuid AND consumer = $2::text AND tenant_id = $3::text AND source = $4::text`
)

// stepTable has the results of steps that are done.
type stepTable struct{ *Handle }

// Load returns the results of the steps of a message, by name.
func (t stepTable) Load(ctx context.Context, id Identity) (map[string][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, t.Patience())
	defer cancel()
	return pgsql.Map[[]byte](t.SQL.Query(ctx, t.DB(ctx), loadSteps, id.Args()...))
}

// Store stores the result of a step. held is false if another process has taken the lease: nothing was stored then.
func (t stepTable) Store(ctx context.Context, db bun.IDB, id Identity, l Lease, name string, result []byte) (held bool, err error) {
	n, err := t.SQL.Confirmed().Exec(ctx, db, storeStep, append(id.Args(), name, string(result), l.Lock, l.Token)...)
	return n > 0, err
}

// Forget removes the steps of a message that is being settled.
func (t stepTable) Forget(ctx context.Context, tx bun.IDB, id Identity) error {
	_, err := t.SQL.Exec(ctx, tx, forgetSteps, id.Args()...)
	return err
}
