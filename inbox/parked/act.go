package parked

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/pace"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/uow"
)

// ErrNotParked means that no parked message with this id is the first of its ordering key: it was handled, is being handled just now, is a dead letter, or is
// parked behind others.
var ErrNotParked = errors.New("inbox: no parked message with this id is the first of its ordering key")

const (
	// firstParked is the condition that p is the next message of its key k.
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

	// findParked locks the message, so it waits for a handler that is trying it.
	findParked = `
SELECT p.key_lock, k.ordering_key IS NOT NULL, p.topic, p.event_type FROM {schema}.inbox_parked p JOIN {schema}.inbox_key k USING (consumer, key_lock)
WHERE p.message_key = $1::uuid AND p.consumer = $2::text AND p.tenant_id = $3::text AND p.source = $4::text
FOR UPDATE OF p`

	// giveUp makes a dead letter of the first message of a key. The letter keeps the message's place. The caller must hold the lock of the
	// key.
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
	INSERT INTO {schema}.inbox_dead ({message}, key_lock, attempts, error_message, holds, seq, fingerprint, failed_by)
	SELECT {message}, key_lock, greatest(attempts, 1), coalesce(nullif(error_message, ''), $9::text), $8::boolean, seq,
		coalesce(nullif(fingerprint, ''), $10::text), failed_by
	FROM p` + store.DiedAgain + `)
SELECT count(*) FROM p`
)

// RetryNow ends the pause of a parked message that failed: it is tried at once. It must be the first message of its key and not be running,
// or the error is [ErrNotParked]. Its attempts stay counted.
func (m *Messages) RetryNow(ctx context.Context, key operator.MessageRef, by operator.By) error {
	what := fmt.Sprintf("%s %s of consumer %s", operator.Retry, key.MessageKey, key.Consumer)
	args, err := store.RefArgs(key)
	// Both are checked, so that an operator sees all mistakes at once.
	if err := errors.Join(by.Validate(operator.Retry), err); err != nil {
		return store.Wrap(what, err)
	}
	var moved int64
	args = append([]any{by.Actor, string(operator.Retry), pgsql.CleanText(by.Reason)}, args...)
	if err := m.h.AdHoc().QueryRow(ctx, m.h.DB(ctx), retryNow, args, &moved); err != nil {
		return store.Wrap(what, err)
	}
	if moved == 0 {
		return store.Wrap(what, ErrNotParked)
	}
	// Runners look at the key at once. Without this they would find it at their next look at the table.
	m.h.Wake()
	return nil
}

// GiveUp makes a dead letter of a parked message, which must be the first of its key, or the error is [ErrNotParked]. It waits for a
// handler that is trying the message. It does not wait for a handler under a lease, whose result is refused when it ends. by must give a
// reason. The messages behind it wait until the dead letter is discarded or replayed (package inbox/dead), unless the consumer
// goes on after dead letters (inbox.ContinueAfterDead). For a consumer that this process does not run, inbox.Config.ContinueAfterDead decides.
func (m *Messages) GiveUp(ctx context.Context, key operator.MessageRef, by operator.By) error {
	what := fmt.Sprintf("%s %s of consumer %s", operator.GiveUp, key.MessageKey, key.Consumer)
	of, err := store.RefArgs(key)
	if err := errors.Join(by.Validate(operator.GiveUp), err); err != nil {
		return store.Wrap(what, err)
	}
	run := m.h.AdHoc()
	// This transaction holds the message until its end, so a handler cannot settle it at the same time.
	err = m.h.Units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		var lock int64
		var ordered bool
		var topic, kind string
		if err := run.QueryRow(ctx, u.DB(), findParked, of, &lock, &ordered, &topic, &kind); err != nil {
			return err
		}
		// The lock of the key keeps new messages of the key from being handled between this statement and the commit.
		if _, err := run.Exec(ctx, u.DB(), store.LockKey, lock); err != nil {
			return err
		}
		holds := ordered && !m.continuesAfterDead(key.Consumer, topic)
		// The reason counts only for a message that has not failed.
		reason := pgsql.CleanText("given up by " + by.Actor)
		args := append([]any{by.Actor, string(operator.GiveUp), pgsql.CleanText(by.Reason)},
			append(of, holds, reason, store.Fingerprint(key.Consumer, kind, reason))...)
		var moved int64
		// The condition is checked again here: the message may have moved between the two statements.
		if err := run.QueryRow(ctx, u.DB(), giveUp, args, &moved); err != nil {
			return err
		}
		if moved == 0 {
			return ErrNotParked
		}
		// The messages behind the letter stay, so nobody has to be woken.
		if holds {
			return nil
		}
		u.AfterCommit(func(context.Context) { m.h.Wake() })
		return m.keys.Keys.Free(ctx, u.DB(), key.Consumer, lock)
	}, store.ReadCommitted())
	// findParked has found no row.
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNotParked
	}
	return store.Wrap(what, err)
}

const (
	countParked = `
SELECT count(*) FROM {schema}.inbox_key k CROSS JOIN LATERAL (
	SELECT * FROM {schema}.inbox_parked x WHERE x.consumer = k.consumer AND x.key_lock = k.key_lock AND %s ORDER BY x.seq LIMIT %s) p
WHERE %s`

	// retryMany is retryNow for the first messages of many keys, in the order of the keys. A key that is locked is just being worked on, or another
	// operator has it.
	retryMany = `
WITH chosen AS MATERIALIZED (
	SELECT k.consumer, k.key_lock, p.seq FROM {schema}.inbox_key k CROSS JOIN LATERAL (
		SELECT * FROM {schema}.inbox_parked x WHERE x.consumer = k.consumer AND x.key_lock = k.key_lock ORDER BY x.seq LIMIT 1) p
	WHERE k.owner IS NULL AND %s ORDER BY k.consumer, k.key_lock LIMIT %s FOR UPDATE OF k SKIP LOCKED),
p AS (
	UPDATE {schema}.inbox_key k SET state = 'WAITING', due_at = clock_timestamp()
	FROM chosen c JOIN {schema}.inbox_parked p USING (consumer, key_lock, seq)
	WHERE k.consumer = c.consumer AND k.key_lock = c.key_lock
	RETURNING p.*),
noted AS (` + store.NoteDeeds + `p ORDER BY consumer, key_lock)
SELECT consumer, key_lock, (SELECT count(*) FROM p) FROM chosen ORDER BY consumer DESC, key_lock DESC LIMIT 1`
)

// Count counts the parked messages that the filter selects.
func (m *Messages) Count(ctx context.Context, filter Filter) (int64, error) {
	if err := filter.Validate(); err != nil {
		return 0, err
	}
	statement, args := count(filter)
	var n int64
	err := m.h.AdHoc().QueryRow(ctx, m.h.DB(ctx), statement, args, &n)
	return n, store.Wrap("count parked messages", err)
}

// count makes the statement that counts.
func count(f Filter) (statement string, args []any) {
	w, ofKey := f.where()
	perKey := "ALL"
	if f.FirstOnly {
		perKey = "1"
	}
	return fmt.Sprintf(countParked, ofKey, perKey, w), w.Args
}

// RetryAll is [Messages.RetryNow] for each key that failed and whose first message the filter selects, after an outage for example. State and FirstOnly of
// the filter are set. It returns how many messages are tried at once, also beside an error: each batch is a transaction of its own, and the
// batches before stay. What is just being tried is left alone.
func (m *Messages) RetryAll(ctx context.Context, filter Filter, by operator.By, bulk *operator.Bulk) (moved int64, err error) {
	if bulk == nil {
		bulk = &operator.Bulk{}
	}
	// Only these can be retried: others wait behind the first message of their key, or were never tried.
	filter.State, filter.FirstOnly = KeyFailed, true
	if err := errors.Join(by.Validate(operator.Retry), filter.Validate()); err != nil {
		return 0, fmt.Errorf("inbox: %s parked messages: %w", operator.Retry, err)
	}
	if bulk.DryRun {
		return m.Count(ctx, filter)
	}
	p := pace.New(bulk.Rate, cmp.Or(max(bulk.BatchSize, 0), batch))
	var after *keyPlace
	for {
		last, n, err := m.retryBatch(ctx, filter, by, after, p.Batch())
		moved += n
		if err == nil && last != nil && bulk.Progress != nil {
			bulk.Progress(moved)
		}
		if err == nil && last != nil {
			err = p.Wait(ctx, n)
		}
		if err != nil {
			return moved, store.Wrap(fmt.Sprintf("%s parked messages, after %d", operator.Retry, moved), err)
		}
		if last == nil {
			return moved, nil
		}
		after = last
	}
}

// batch is how many keys one transaction changes.
const batch = 100

// keyPlace is where a key stands among all.
type keyPlace struct {
	consumer string
	lock     int64
}

// retryBatch has the next keys tried. last is nil if there is none.
func (m *Messages) retryBatch(ctx context.Context, filter Filter, by operator.By, after *keyPlace, size int) (last *keyPlace, n int64, err error) {
	statement, args := retry(filter, by, after, size)
	var at keyPlace
	err = m.h.AdHoc().QueryRow(ctx, m.h.DB(ctx), statement, args, &at.consumer, &at.lock, &n)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, 0, nil
	case err != nil:
		return nil, 0, err
	}
	m.h.Wake()
	return &at, n, nil
}

// retry makes the statement of a batch. Each batch has another one, because the position is one of its conditions.
func retry(f Filter, by operator.By, after *keyPlace, size int) (statement string, args []any) {
	w, _ := f.where(by.Actor, string(operator.Retry), pgsql.CleanText(by.Reason))
	if after != nil {
		w.Add("(k.consumer, k.key_lock) > (%s::text, %s::bigint)", after.consumer, after.lock)
	}
	bound := w.Arg(size)
	return fmt.Sprintf(retryMany, w, bound), w.Args
}
