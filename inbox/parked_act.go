package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/uow"
)

// ErrNotParked means that no such message waits as the first of its key: it was handled or is just being handled, it is a
// dead letter, or others of its key wait before it.
var ErrNotParked = errors.New("inbox: no such message waits as the first of its key")

const (
	// firstParked says that p is the next one of its key k.
	firstParked = `k.state <> 'DEAD'
		AND p.seq = (SELECT min(f.seq) FROM {schema}.inbox_parked f WHERE f.consumer = p.consumer AND f.key_lock = p.key_lock)`

	retryNow = `
WITH p AS (
	UPDATE {schema}.inbox_key k SET state = 'WAITING', due_at = clock_timestamp()
	FROM {schema}.inbox_parked p
	WHERE p.message_key = $4::uuid AND p.consumer = $5::text AND p.tenant_id = $6::text AND p.source = $7::text
		AND k.consumer = p.consumer AND k.key_lock = p.key_lock AND k.owner IS NULL AND ` + firstParked + `
	RETURNING p.*),
noted AS (` + store.NoteDeeds + `p)
SELECT count(*) FROM p`

	// findParked waits for a handler that is just trying the message.
	findParked = `
SELECT p.key_lock, k.ordering_key IS NOT NULL, p.topic FROM {schema}.inbox_parked p JOIN {schema}.inbox_key k USING (consumer, key_lock)
WHERE p.message_key = $1::uuid AND p.consumer = $2::text AND p.tenant_id = $3::text AND p.source = $4::text
FOR UPDATE OF p`

	// giveUp makes a dead letter of the first message of a key, whose place it keeps. It must be preceded by the key's lock.
	giveUp = `
WITH p AS (
	DELETE FROM {schema}.inbox_parked p USING {schema}.inbox_key k
	WHERE p.message_key = $4::uuid AND p.consumer = $5::text AND p.tenant_id = $6::text AND p.source = $7::text
		AND k.consumer = p.consumer AND k.key_lock = p.key_lock AND ` + firstParked + `
	RETURNING p.*),
noted AS (` + store.NoteDeeds + `p),
held AS (
	UPDATE {schema}.inbox_key k SET state = 'DEAD', owner = NULL, due_at = 'infinity'
	FROM p WHERE k.consumer = p.consumer AND k.key_lock = p.key_lock AND $8::boolean),
dead AS (
	INSERT INTO {schema}.inbox_dead (` + store.MessageColumns + `, key_lock, attempts, error_message, holds, seq)
	SELECT ` + store.MessageColumns + `, key_lock, greatest(attempts, 1), coalesce(nullif(error_message, ''), 'given up by ' || $1::text), $8::boolean, seq
	FROM p` + store.DiedAgain + `)
SELECT count(*) FROM p`
)

// RetryNow has a parked message that failed tried at once, and not only when its pause is over. It must be the first of its
// key and not be running, or the error is [ErrNotParked]. Its attempts stay counted.
func (i *Inbox) RetryNow(ctx context.Context, key MessageRef, by operator.By) error {
	what := fmt.Sprintf("%s %s of consumer %s", operator.Retry, key.MessageKey, key.Consumer)
	args, err := key.args()
	if err := errors.Join(by.Validate(operator.Retry), err); err != nil {
		return wrapErr(what, err)
	}
	var moved int64
	args = append([]any{by.Actor, string(operator.Retry), pgsql.CleanText(by.Reason)}, args...)
	if err := i.store.AdHoc().QueryRow(ctx, i.store.DB(ctx), retryNow, args, &moved); err != nil {
		return wrapErr(what, err)
	}
	if moved == 0 {
		return wrapErr(what, ErrNotParked)
	}
	i.wake()
	return nil
}

// GiveUp makes a dead letter of a parked message, which must be the first of its key, or the error is [ErrNotParked]. It
// waits for a handler that is just trying it, unless that runs under a lease: such a one is told when it ends. by must give a
// reason. What is behind it waits for what becomes of the dead letter, see [Inbox.Discard] and [Inbox.Replay]; where
// the consumer goes on after dead letters ([ContinueAfterDead]) it does not. What a consumer of another process does is not known here:
// [Config.ContinueAfterDead] says it.
func (i *Inbox) GiveUp(ctx context.Context, key MessageRef, by operator.By) error {
	what := fmt.Sprintf("%s %s of consumer %s", operator.GiveUp, key.MessageKey, key.Consumer)
	of, err := key.args()
	if err := errors.Join(by.Validate(operator.GiveUp), err); err != nil {
		return wrapErr(what, err)
	}
	run := i.store.AdHoc()
	err = i.store.Units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		var lock int64
		var ordered bool
		var topic string
		if err := run.QueryRow(ctx, u.DB(), findParked, of, &lock, &ordered, &topic); err != nil {
			return err
		}
		if _, err := run.Exec(ctx, u.DB(), store.LockKey, lock); err != nil {
			return err
		}
		holds := ordered && !i.continuesAfterDead(key.Consumer, topic)
		args := append([]any{by.Actor, string(operator.GiveUp), pgsql.CleanText(by.Reason)}, append(of, holds)...)
		var moved int64
		if err := run.QueryRow(ctx, u.DB(), giveUp, args, &moved); err != nil {
			return err
		}
		if moved == 0 {
			return ErrNotParked
		}
		if holds {
			return nil
		}
		u.AfterCommit(func(context.Context) { i.wake() })
		return i.table.Keys.Free(ctx, u.DB(), key.Consumer, lock)
	}, readCommitted())
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNotParked
	}
	return wrapErr(what, err)
}
