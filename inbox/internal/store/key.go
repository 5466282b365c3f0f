package store

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// ParkedKey is a key that does not flow and that this process has taken.
type ParkedKey struct {
	Consumer string
	Lock     int64
	// Doubtful says that the next try of its first message must be counted before it is made: because it is not the first try, or because
	// the process that had the key has gone and the message may have killed it.
	Doubtful bool
}

const (
	// ClaimKeys takes due keys of the topics $5 (NULL: of all topics), the longest overdue first. It leaves keys alone whose first message
	// this process has no handler for: taking and giving back would delay such a key each time.
	ClaimKeys = TopicsOfKeys + `, due AS MATERIALIZED (
	SELECT k.* FROM seen s CROSS JOIN LATERAL (
		SELECT k.consumer, k.key_lock, k.owner, k.due_at FROM {schema}.inbox_key k
		WHERE k.consumer = s.consumer AND k.topic = s.topic AND k.state <> 'DEAD' AND k.due_at <= (SELECT clock_timestamp())
		ORDER BY k.due_at LIMIT $2::integer FOR UPDATE SKIP LOCKED) k
	WHERE $5::text[] IS NULL OR s.topic = ANY ($5::text[]) ORDER BY k.due_at LIMIT $2::integer
)
UPDATE {schema}.inbox_key k SET owner = $3::uuid, due_at = clock_timestamp() + $4::interval
FROM due WHERE k.consumer = due.consumer AND k.key_lock = due.key_lock
RETURNING k.key_lock, k.state = 'FAILED' OR due.owner IS NOT NULL`

	// NextDue returns the microseconds until the next key becomes due, NULL if there is none. Keys that are due and were not taken do not
	// count: another process works on them, or has the handlers for them. It reads the first entry of the index for each consumer and
	// topic, because min() over all would read every waiting key.
	NextDue = TopicsOfKeys + `
SELECT (extract(epoch FROM min(due_at) - clock_timestamp()) * 1000000)::bigint
FROM seen s CROSS JOIN LATERAL (
	SELECT k.due_at FROM {schema}.inbox_key k
	WHERE k.consumer = s.consumer AND k.topic = s.topic AND k.state <> 'DEAD' AND k.due_at > (SELECT clock_timestamp())
	ORDER BY k.due_at LIMIT 1) first`

	// renewKeys skips a key whose row is locked because its last message is being removed. No process can take that key, and waiting for it
	// would let the leases of the other keys end.
	renewKeys = `
UPDATE {schema}.inbox_key k SET due_at = clock_timestamp() + $4::interval
FROM (
	SELECT l.consumer, l.key_lock FROM unnest($2::text[], $3::bigint[]) u(consumer, key_lock)
	JOIN {schema}.inbox_key l ON l.consumer = u.consumer AND l.key_lock = u.key_lock AND l.owner = $1::uuid
	FOR NO KEY UPDATE OF l SKIP LOCKED
) mine
WHERE k.consumer = mine.consumer AND k.key_lock = mine.key_lock`

	// handBackKey lets any process go on with a key, after a pause. It reads the topic of the first message again, because another
	// statement may have changed which message is first.
	handBackKey = `
UPDATE {schema}.inbox_key k SET owner = NULL, due_at = clock_timestamp() + $4::interval, topic = coalesce(` + topicOfFirst + `, topic)
WHERE consumer = $1::text AND key_lock = $2::bigint AND owner = $3::uuid`

	// topicOfFirst is the topic of the first message of a key k.
	topicOfFirst = `(
	SELECT p.topic FROM {schema}.inbox_parked p WHERE p.consumer = k.consumer AND p.key_lock = k.key_lock ORDER BY p.seq LIMIT 1)`

	// SetTopics corrects the topics of keys. It must follow every statement that changes which message of a key is the first.
	SetTopics = `
UPDATE {schema}.inbox_key k SET topic = ` + topicOfFirst + `
FROM (SELECT DISTINCT u.consumer, u.key_lock FROM unnest($1::text[], $2::bigint[]) u(consumer, key_lock)) u
WHERE k.consumer = u.consumer AND k.key_lock = u.key_lock AND k.topic <> ` + topicOfFirst

	// LockKey locks a key: it waits for processes that store or handle messages of the key. The SQL function inbox_enter takes the same
	// lock.
	LockKey = `SELECT FROM pg_advisory_xact_lock(hashint8extended($1::bigint, '{schema}.inbox'::regclass::oid::bigint))`

	// freeKey follows every statement that removes the first message of a key: the next message may run, and if there is none, the key
	// flows again. The lock of the key must be taken before, in a statement of its own.
	freeKey = `
WITH rest AS MATERIALIZED (
	SELECT topic FROM {schema}.inbox_parked WHERE consumer = $1::text AND key_lock = $2::bigint ORDER BY seq LIMIT 1
), flows AS (
	DELETE FROM {schema}.inbox_key WHERE consumer = $1::text AND key_lock = $2::bigint AND NOT EXISTS (SELECT FROM rest)
)
UPDATE {schema}.inbox_key k SET state = 'WAITING', due_at = clock_timestamp(), owner = NULL, topic = rest.topic
FROM rest WHERE k.consumer = $1::text AND k.key_lock = $2::bigint`
)

// keyTable works on the keys that do not flow.
type keyTable struct{ *Handle }

// Claim takes up to n due keys of a consumer whose first messages are of these topics; nil: of all topics.
func (t keyTable) Claim(ctx context.Context, consumer string, n int, topics []string) (keys []ParkedKey, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.Patience())
	defer cancel()
	rows := t.SQL.Query(ctx, t.DB(ctx), ClaimKeys, []string{consumer}, n, t.Owner, t.ParkedLease, topics)
	keys, err = pgsql.Collect(rows, func(scan pgsql.Scan, k *ParkedKey) error {
		k.Consumer = consumer
		return scan(&k.Lock, &k.Doubtful)
	})
	if err != nil {
		return nil, fmt.Errorf("inbox: take keys of consumer %s: %w", consumer, pgerr.Explain(err))
	}
	return keys, nil
}

// NextDue returns how long to wait for the next key, at most limit.
func (t keyTable) NextDue(ctx context.Context, consumers []string, limit time.Duration) (time.Duration, error) {
	var wait *int64
	if err := t.SQL.QueryRow(ctx, t.DB(ctx), NextDue, []any{consumers}, &wait); err != nil {
		return limit, fmt.Errorf("inbox: look for the next key: %w", pgerr.Explain(err))
	}
	if wait == nil {
		return limit, nil
	}
	return time.Duration(min(*wait, limit.Microseconds())) * time.Microsecond, nil // cannot overflow: it is at most limit
}

// Renew extends the ownership of the keys. A key that another process owns by now is left to it.
func (t keyTable) Renew(ctx context.Context, keys []ParkedKey) error {
	consumers, locks := make([]string, len(keys)), make([]int64, len(keys))
	for n, k := range keys {
		consumers[n], locks[n] = k.Consumer, k.Lock
	}
	_, err := t.SQL.Exec(ctx, t.DB(ctx), renewKeys, t.Owner, consumers, locks, t.ParkedLease)
	return err
}

// HandBack gives a key up, to be taken again after wait. It does nothing if another process owns the key by now.
func (t keyTable) HandBack(ctx context.Context, k ParkedKey, wait time.Duration) error {
	_, err := t.SQL.Exec(ctx, t.DB(ctx), handBackKey, k.Consumer, k.Lock, t.Owner, wait)
	return err
}

// Free takes the lock of a key and lets it go on, see freeKey.
func (t keyTable) Free(ctx context.Context, tx bun.IDB, consumer string, lock int64) error {
	for _, s := range []struct {
		statement string
		args      []any
	}{{LockKey, []any{lock}}, {freeKey, []any{consumer, lock}}} {
		if _, err := t.SQL.Exec(ctx, tx, s.statement, s.args...); err != nil {
			return fmt.Errorf("inbox: free a key of consumer %s: %w", consumer, pgerr.Explain(err))
		}
	}
	return nil
}
