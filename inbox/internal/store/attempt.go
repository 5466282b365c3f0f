package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgsql"
)

const (
	// beginAttempt counts a try before it is made, unless the message was handled or parked before: then it returns no row.
	beginAttempt = `
INSERT INTO {schema}.inbox_attempt AS a (message_key, consumer, tenant_id, source, attempts, unended)
SELECT $1::uuid, $2::text, $3::text, $4::text, 1, 1
WHERE NOT EXISTS (SELECT FROM {schema}.inbox i
	WHERE i.message_key = $1::uuid AND i.consumer = $2::text AND i.tenant_id = $3::text AND i.source = $4::text)
ON CONFLICT (message_key, consumer, tenant_id, source) DO UPDATE
SET attempts = a.attempts + 1, unended = a.unended + 1, tried_at = clock_timestamp()
RETURNING attempts, unended`

	// failAttempt stores the error of a try, and counts the try if it was not counted before.
	failAttempt = `
INSERT INTO {schema}.inbox_attempt AS a (message_key, consumer, tenant_id, source, attempts, error_message)
VALUES ($1::uuid, $2::text, $3::text, $4::text, 1, $6::text)
ON CONFLICT (message_key, consumer, tenant_id, source) DO UPDATE
SET attempts = a.attempts + $5::integer, unended = 0, error_message = excluded.error_message, tried_at = clock_timestamp()
RETURNING attempts`

	// forgetAttempts is part of every transaction that settles a message.
	forgetAttempts = `
DELETE FROM {schema}.inbox_attempt WHERE message_key = $1::uuid AND consumer = $2::text AND tenant_id = $3::text AND source = $4::text`

	// takeBackAttempt uncounts a try that was interrupted by the end of its process, which is not a failure.
	takeBackAttempt = `
WITH first AS (
	DELETE FROM {schema}.inbox_attempt
	WHERE message_key = $1::uuid AND consumer = $2::text AND tenant_id = $3::text AND source = $4::text AND attempts = 1
)
UPDATE {schema}.inbox_attempt SET attempts = attempts - 1, unended = greatest(unended - 1, 0)
WHERE message_key = $1::uuid AND consumer = $2::text AND tenant_id = $3::text AND source = $4::text AND attempts > 1`
)

// Attempts counts the tries of a message.
type Attempts struct {
	N       int
	Unended int  // tries in a row, up to now, that have no recorded outcome
	Begun   bool // the present try was counted before it began
}

// Earlier returns the attempts before the present one, which must have been counted already.
func (a Attempts) Earlier() Attempts { return Attempts{N: a.N - 1, Unended: a.Unended - 1} }

// attemptTable counts the tries of messages that are at the broker.
type attemptTable struct{ *Handle }

// Begin counts a try and commits. fresh is false if the message was settled already.
func (t attemptTable) Begin(ctx context.Context, id Identity) (a Attempts, fresh bool, err error) {
	err = t.Count(ctx, beginAttempt, id.Args(), &a.N, &a.Unended)
	if errors.Is(err, sql.ErrNoRows) {
		return a, false, nil
	}
	if err != nil {
		return a, false, fmt.Errorf("inbox: count a try of message %s: %w", id.Key, Explain(err))
	}
	a.Begun = true
	return a, true, nil
}

// Fail stores the error of a try and returns the number of tries so far.
func (t attemptTable) Fail(ctx context.Context, id Identity, a Attempts, cause error) (n int, err error) {
	more := 1
	if a.Begun {
		more = 0
	}
	err = t.SQL.QueryRow(ctx, t.DB(ctx), failAttempt, append(id.Args(), more, pgsql.CleanText(cause.Error())), &n)
	if err != nil {
		return 0, fmt.Errorf("inbox: record the failed try of message %s: %w", id.Key, Explain(err))
	}
	return n, nil
}

// Forget removes the count of a message's tries. It belongs into the transaction that settles the message.
func (t attemptTable) Forget(ctx context.Context, tx bun.IDB, id Identity) error {
	_, err := t.SQL.Exec(ctx, tx, forgetAttempts, id.Args()...)
	return err
}

// TakeBack uncounts an interrupted try. It is a best effort, so errors are ignored. Without it, a message that is interrupted again and
// again would be given up.
func (t attemptTable) TakeBack(ctx context.Context, id Identity, a Attempts) {
	if a.Begun {
		_, _ = t.SQL.Exec(context.WithoutCancel(ctx), t.DB(ctx), takeBackAttempt, id.Args()...)
	}
}

// Args returns the columns that identify a message in every table of the inbox.
func (id Identity) Args() []any { return []any{id.Key.String(), id.Consumer, id.Tenant, id.Source} }
