package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
)

// Head is the first message of a key that does not flow.
type Head struct {
	Seq      int64
	attempts int
	parked   time.Time
	Unknown  time.Duration // time since the first try by a build that does not know it, see DeployWait
	Failing  time.Duration // time since it began to fail, see GiveUpAfter
	Key      operator.MessageRef
	Envelope event.Envelope
}

const (
	// takeHead locks the first message of a key. It returns no row if another process has the key by now, or still runs the message. It
	// names the first message by its number, or SKIP LOCKED would take the message behind it.
	takeHead = `
SELECT {message read}, attempts, seq, parked_at,
	coalesce(extract(epoch FROM clock_timestamp() - unknown_since), 0)::float8,
	coalesce(extract(epoch FROM clock_timestamp() - failing_since), 0)::float8 FROM {schema}.inbox_parked p
WHERE consumer = $1::text AND key_lock = $2::bigint
	AND seq = (SELECT min(seq) FROM {schema}.inbox_parked WHERE consumer = $1::text AND key_lock = $2::bigint)
	AND EXISTS (SELECT FROM {schema}.inbox_key k WHERE k.consumer = $1::text AND k.key_lock = $2::bigint AND k.owner = $3::uuid)
FOR UPDATE OF p SKIP LOCKED`

	// countHead counts a try before it is made. It does not wait for another process that still runs the message.
	countHead = `
UPDATE {schema}.inbox_parked p SET attempts = p.attempts + 1, unended = p.unended + 1
FROM (
	SELECT f.message_key, f.consumer, f.tenant_id, f.source FROM {schema}.inbox_parked f WHERE f.consumer = $1::text AND f.key_lock = $2::bigint
		AND f.seq = (SELECT min(seq) FROM {schema}.inbox_parked WHERE consumer = $1::text AND key_lock = $2::bigint)
		AND EXISTS (SELECT FROM {schema}.inbox_key k WHERE k.consumer = $1::text AND k.key_lock = $2::bigint AND k.owner = $3::uuid)
	FOR UPDATE OF f SKIP LOCKED
) first
WHERE (p.message_key, p.consumer, p.tenant_id, p.source) = (first.message_key, first.consumer, first.tenant_id, first.source)
RETURNING p.attempts, p.unended, p.seq`

	// uncountHead takes back the count of a try that was not made or was interrupted.
	uncountHead = `
UPDATE {schema}.inbox_parked SET attempts = attempts - 1, unended = greatest(unended - 1, 0)
WHERE consumer = $1::text AND key_lock = $2::bigint AND seq = $3::bigint AND attempts > 0`

	// enterHead enters a message again if its entry has expired since it was parked. If the entry of a message without order has expired, a
	// copy may have been handled meanwhile. The copy has left a younger entry, which the result reports. The insert finds it by the index;
	// a SELECT would lock all partitions for as long as the handler runs.
	enterHead = `
WITH entered AS (
	INSERT INTO {schema}.inbox AS i (message_key, consumer, tenant_id, source)
	SELECT message_key, consumer, tenant_id, source FROM {schema}.inbox_parked
	WHERE consumer = $1::text AND key_lock = $2::bigint AND seq = $3::bigint
	ON CONFLICT (message_key, consumer, tenant_id, source) DO UPDATE SET processed_at = i.processed_at WHERE i.processed_at > $4::timestamptz
	RETURNING processed_at <> now() AS younger
)
SELECT EXISTS (SELECT FROM entered WHERE younger)`

	// removeHead removes the first message of a key, and the row of the key if no message is behind it, which the result reports. The lock
	// of the key must be taken before, in a statement of its own, so that this one sees all messages that were stored behind the first.
	removeHead = `
WITH gone AS (
	DELETE FROM {schema}.inbox_parked WHERE consumer = $1::text AND key_lock = $2::bigint AND seq = $3::bigint
), behind AS MATERIALIZED (
	SELECT p.topic FROM {schema}.inbox_parked p WHERE p.consumer = $1::text AND p.key_lock = $2::bigint AND p.seq <> $3::bigint
	ORDER BY p.seq LIMIT 1
), flows AS (
	DELETE FROM {schema}.inbox_key WHERE consumer = $1::text AND key_lock = $2::bigint AND NOT EXISTS (SELECT FROM behind) RETURNING 1
), leads AS (
	UPDATE {schema}.inbox_key k SET topic = b.topic FROM behind b
	WHERE k.consumer = $1::text AND k.key_lock = $2::bigint AND k.topic <> b.topic
)
SELECT EXISTS (SELECT FROM flows)`

	// failHead sets when the first message of a key is tried again. It locks the message before the key, the order that all transactions
	// follow: see head.run in package inbox.
	failHead = `
WITH h AS MATERIALIZED (
	SELECT FROM {schema}.inbox_parked p WHERE consumer = $1::text AND key_lock = $2::bigint AND seq = $3::bigint
		AND EXISTS (SELECT FROM {schema}.inbox_key k WHERE k.consumer = $1::text AND k.key_lock = $2::bigint AND k.owner = $4::uuid)
	FOR UPDATE OF p
), k AS (
	UPDATE {schema}.inbox_key SET state = 'FAILED', owner = NULL, due_at = clock_timestamp() + $5::interval
	WHERE consumer = $1::text AND key_lock = $2::bigint AND owner = $4::uuid AND EXISTS (SELECT FROM h) RETURNING consumer, key_lock
)
UPDATE {schema}.inbox_parked p SET attempts = $6::integer, unended = 0, error_message = $7::text,
	failing_since = CASE WHEN $8::boolean THEN p.failing_since ELSE coalesce(p.failing_since, clock_timestamp()) END,
	unknown_since = CASE WHEN $8::boolean THEN coalesce(p.unknown_since, clock_timestamp()) ELSE p.unknown_since END,
	fingerprint = $9::text, cause_since = CASE WHEN p.fingerprint = $9::text THEN p.cause_since ELSE clock_timestamp() END, failed_by = $10::text
FROM k WHERE p.consumer = k.consumer AND p.key_lock = k.key_lock AND p.seq = $3::bigint`
)

// takeAwayHead removes the first message of a key and marks the key as dead: it waits for an operator. It affects no row if another process
// has the key by now.
const takeAwayHead = `
WITH k AS (
	UPDATE {schema}.inbox_key SET state = 'DEAD', owner = NULL, due_at = 'infinity'
	WHERE consumer = $1::text AND key_lock = $2::bigint AND owner = $4::uuid RETURNING consumer, key_lock
)
DELETE FROM {schema}.inbox_parked p USING k WHERE p.consumer = k.consumer AND p.key_lock = k.key_lock AND p.seq = $3::bigint`

// lookForHead locks a message. It returns no row if the message is no longer parked in its place.
const lookForHead = `SELECT FROM {schema}.inbox_parked WHERE consumer = $1::text AND key_lock = $2::bigint AND seq = $3::bigint FOR UPDATE`

// ErrOthers rolls back a unit that has nothing to do.
var ErrOthers = errors.New("inbox: another process has the key by now")

// Count is a try that was counted before it was made. Seq is the place of the message, 0 if no try was counted.
type Count struct {
	Attempts
	Seq int64
}

// Try returns the number of the present try. counted is the try if it was counted before.
func (h Head) Try(counted Count) int {
	if counted.Seq == h.Seq {
		return counted.N
	}
	return h.attempts + 1
}

// headTable works on the first messages of the keys that do not flow.
type headTable struct{ *Handle }

// Begin counts a try before it is made. The error is sql.ErrNoRows if another process has the key, or still runs the message.
func (t headTable) Begin(ctx context.Context, k ParkedKey) (c Count, err error) {
	err = t.Count(ctx, countHead, []any{k.Consumer, k.Lock, t.Owner}, &c.N, &c.Unended, &c.Seq)
	return c, err
}

// Take locks and reads the first message of a key. The error is ErrOthers if another process has the key, or still runs the message.
func (t headTable) Take(ctx context.Context, tx bun.IDB, k ParkedKey) (h Head, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.Patience())
	defer cancel()
	found, err := pgsql.One(t.SQL.Query(ctx, tx, takeHead, k.Consumer, k.Lock, t.Owner), func(scan pgsql.Scan) (err error) {
		var unknown, failing float64
		h.Key, h.Envelope, err = ScanEnvelope(scan, &h.attempts, &h.Seq, &h.parked, &unknown, &failing)
		h.Unknown, h.Failing = time.Duration(unknown*float64(time.Second)), time.Duration(failing*float64(time.Second))
		return err
	})
	if !found {
		err = errors.Join(ErrOthers, err)
	}
	return h, err
}

// Enter enters the first message of a key again if its entry has expired. handled reports whether a copy of it was handled meanwhile.
func (t headTable) Enter(ctx context.Context, tx bun.IDB, k ParkedKey, h Head) (handled bool, err error) {
	err = t.SQL.QueryRow(ctx, tx, enterHead, []any{k.Consumer, k.Lock, h.Seq, h.parked}, &handled)
	return handled, err
}

// Lock locks a message. there is false if it is no longer parked in its place.
func (t headTable) Lock(ctx context.Context, tx bun.IDB, k ParkedKey, h Head) (there bool, err error) {
	n, err := t.SQL.Exec(ctx, tx, lookForHead, k.Consumer, k.Lock, h.Seq)
	return n > 0, err
}

// LockKey waits for processes that store or handle messages of the key.
func (t headTable) LockKey(ctx context.Context, tx bun.IDB, k ParkedKey) error {
	_, err := t.SQL.Exec(ctx, tx, LockKey, k.Lock)
	return err
}

// Remove takes the lock of the key and removes its first message. more reports whether another message is behind it.
func (t headTable) Remove(ctx context.Context, tx bun.IDB, k ParkedKey, seq int64) (more bool, err error) {
	if err := t.LockKey(ctx, tx, k); err != nil {
		return false, err
	}
	var flows bool
	err = t.SQL.QueryRow(ctx, tx, removeHead, []any{k.Consumer, k.Lock, seq}, &flows)
	return !flows, err
}

// TakeAway removes the first message of a key and marks the key as dead: it waits for an operator. taken is false if another process has
// the key by now.
func (t headTable) TakeAway(ctx context.Context, tx bun.IDB, k ParkedKey, h Head) (taken bool, err error) {
	n, err := t.SQL.Exec(ctx, tx, takeAwayHead, k.Consumer, k.Lock, h.Seq, t.Owner)
	return n > 0, err
}

// GiveBack hands back a key whose first message was not tried, or whose try was interrupted.
func (t headTable) GiveBack(ctx context.Context, k ParkedKey, counted Count, wait time.Duration) (err error) {
	if counted.Seq != 0 {
		_, err = t.SQL.Exec(ctx, t.DB(ctx), uncountHead, k.Consumer, k.Lock, counted.Seq)
	}
	return errors.Join(err, keyTable(t).HandBack(ctx, k, wait))
}

// Fail sets when the first message of a key is tried again. unknown says that this build does not know the message. noted is false if
// another process has the key by now.
func (t headTable) Fail(ctx context.Context, k ParkedKey, h Head, n int, wait time.Duration, cause error, unknown bool) (noted bool, err error) {
	reason := pgsql.CleanText(cause.Error())
	fingerprint := Fingerprint(k.Consumer, h.Envelope.Type, reason)
	rows, err := t.SQL.Exec(ctx, t.DB(ctx), failHead, k.Consumer, k.Lock, h.Seq, t.Owner, wait, n, reason, unknown, fingerprint,
		t.Process)
	if err != nil {
		return false, fmt.Errorf("inbox: record the failed try of parked message %s: %w", h.Key.MessageKey, err)
	}
	return rows > 0, nil
}
