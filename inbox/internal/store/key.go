package store

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// ParkedKey is a key that does not flow, and that this process has taken.
type ParkedKey struct {
	Consumer string
	Lock     int64
	// Doubtful says that the try of its first message must be counted before it is made: it is not the first one, or the
	// process that had the key has gone.
	Doubtful bool
}

const (
	// ClaimKeys takes the keys whose time has come, the longest overdue first, of the topics $5. NULL: of all topics. A key whose first
	// message no handler of this process is for stays for others: to take it and give it back would cost it a pause each time.
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

	// NextDue is how many microseconds it takes until the next key becomes due, NULL if none will. Those that are due already and
	// are not taken are locked by a process that works on them, or for others. It is the first entry of the index for each consumer and
	// topic: min over all of them would read as many keys as wait.
	NextDue = TopicsOfKeys + `
SELECT (extract(epoch FROM min(due_at) - clock_timestamp()) * 1000000)::bigint
FROM seen s CROSS JOIN LATERAL (
	SELECT k.due_at FROM {schema}.inbox_key k
	WHERE k.consumer = s.consumer AND k.topic = s.topic AND k.state <> 'DEAD' AND k.due_at > (SELECT clock_timestamp())
	ORDER BY k.due_at LIMIT 1) first`

	// renewKeys passes over a key whose last message is being handled: its row is locked, so nobody can take it, and to wait for
	// it would let the others go.
	renewKeys = `
UPDATE {schema}.inbox_key k SET due_at = clock_timestamp() + $4::interval
FROM (
	SELECT l.consumer, l.key_lock FROM unnest($2::text[], $3::bigint[]) u(consumer, key_lock)
	JOIN {schema}.inbox_key l ON l.consumer = u.consumer AND l.key_lock = u.key_lock AND l.owner = $1::uuid
	FOR NO KEY UPDATE OF l SKIP LOCKED
) mine
WHERE k.consumer = mine.consumer AND k.key_lock = mine.key_lock`

	// handBackKey lets anybody go on with a key, after a pause. It reads the topic of the first message again, which another statement
	// may have put there.
	handBackKey = `
UPDATE {schema}.inbox_key k SET owner = NULL, due_at = clock_timestamp() + $4::interval, topic = coalesce(` + topicOfFirst + `, topic)
WHERE consumer = $1::text AND key_lock = $2::bigint AND owner = $3::uuid`

	// topicOfFirst is that of the first message of a key k.
	topicOfFirst = `(
	SELECT p.topic FROM {schema}.inbox_parked p WHERE p.consumer = k.consumer AND p.key_lock = k.key_lock ORDER BY p.seq LIMIT 1)`

	// SetTopics goes with whatever puts messages in front of others, or takes them away there, in a statement before it.
	SetTopics = `
UPDATE {schema}.inbox_key k SET topic = ` + topicOfFirst + `
FROM (SELECT DISTINCT u.consumer, u.key_lock FROM unnest($1::text[], $2::bigint[]) u(consumer, key_lock)) u
WHERE k.consumer = u.consumer AND k.key_lock = u.key_lock AND k.topic <> ` + topicOfFirst

	// LockKey waits for processes that store or handle messages of the key. See inbox_enter for the lock.
	LockKey = `SELECT FROM pg_advisory_xact_lock(hashint8extended($1::bigint, '{schema}.inbox'::regclass::oid::bigint))`

	// freeKey goes with whatever removes the first message of a key: what is behind it may run, and if nothing is, the key
	// flows again. It must be preceded by the key's lock, in a statement of its own.
	freeKey = `
WITH rest AS MATERIALIZED (
	SELECT topic FROM {schema}.inbox_parked WHERE consumer = $1::text AND key_lock = $2::bigint ORDER BY seq LIMIT 1
), flows AS (
	DELETE FROM {schema}.inbox_key WHERE consumer = $1::text AND key_lock = $2::bigint AND NOT EXISTS (SELECT FROM rest)
)
UPDATE {schema}.inbox_key k SET state = 'WAITING', due_at = clock_timestamp(), owner = NULL, topic = rest.topic
FROM rest WHERE k.consumer = $1::text AND k.key_lock = $2::bigint`
)

// keyTable has the keys that do not flow.
type keyTable struct{ *Handle }

// Claim takes up to n keys of a consumer, whose first messages are of these topics; nil: of all.
func (t keyTable) Claim(ctx context.Context, consumer string, n int, topics []string) (keys []ParkedKey, err error) {
	ctx, cancel := t.Bounded(ctx)
	defer cancel()
	rows := t.SQL.Query(ctx, t.DB(ctx), ClaimKeys, []string{consumer}, n, t.Owner, t.ParkedLease, topics)
	keys, err = pgsql.Collect(rows, func(scan pgsql.Scan, k *ParkedKey) error {
		k.Consumer = consumer
		return scan(&k.Lock, &k.Doubtful)
	})
	if err != nil {
		return nil, fmt.Errorf("inbox: take keys of consumer %s: %w", consumer, pgsql.Explain(err))
	}
	return keys, nil
}

// NextDue returns how long to wait for the next key, at most limit.
func (t keyTable) NextDue(ctx context.Context, consumers []string, limit time.Duration) (time.Duration, error) {
	var wait *int64
	if err := t.SQL.QueryRow(ctx, t.DB(ctx), NextDue, []any{consumers}, &wait); err != nil {
		return limit, fmt.Errorf("inbox: look for the next key: %w", pgsql.Explain(err))
	}
	if wait == nil {
		return limit, nil
	}
	return time.Duration(min(*wait, limit.Microseconds())) * time.Microsecond, nil // a Duration holds 292 years
}

func (t keyTable) Renew(ctx context.Context, keys []ParkedKey) error {
	consumers, locks := make([]string, len(keys)), make([]int64, len(keys))
	for n, k := range keys {
		consumers[n], locks[n] = k.Consumer, k.Lock
	}
	_, err := t.SQL.Exec(ctx, t.DB(ctx), renewKeys, t.Owner, consumers, locks, t.ParkedLease)
	return err
}

func (t keyTable) HandBack(ctx context.Context, k ParkedKey, wait time.Duration) error {
	_, err := t.SQL.Exec(ctx, t.DB(ctx), handBackKey, k.Consumer, k.Lock, t.Owner, wait)
	return err
}

// Free takes the lock and lets the key go on; see the statement.
func (t keyTable) Free(ctx context.Context, tx bun.IDB, consumer string, lock int64) error {
	for _, s := range []struct {
		statement string
		args      []any
	}{{LockKey, []any{lock}}, {freeKey, []any{consumer, lock}}} {
		if _, err := t.SQL.Exec(ctx, tx, s.statement, s.args...); err != nil {
			return fmt.Errorf("inbox: free a key of consumer %s: %w", consumer, pgsql.Explain(err))
		}
	}
	return nil
}
