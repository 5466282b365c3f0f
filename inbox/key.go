package inbox

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// parkedKey is a key that does not flow, and that this process has taken.
type parkedKey struct {
	consumer string
	lock     int64
	// doubtful says that the try of its first message must be counted before it is made: it is not the first one, or the
	// process that had the key has gone.
	doubtful bool
}

const (
	// claimKeys takes the keys whose time has come, the longest overdue first, of the topics $5. NULL: of all topics. A key whose first
	// message no handler of this process is for stays for others: to take it and give it back would cost it a pause each time.
	claimKeys = store.TopicsOfKeys + `, due AS MATERIALIZED (
	SELECT k.* FROM seen s CROSS JOIN LATERAL (
		SELECT k.consumer, k.key_lock, k.owner, k.due_at FROM {schema}.inbox_key k
		WHERE k.consumer = s.consumer AND k.topic = s.topic AND k.state <> 'DEAD' AND k.due_at <= (SELECT clock_timestamp())
		ORDER BY k.due_at LIMIT $2::integer FOR UPDATE SKIP LOCKED) k
	WHERE $5::text[] IS NULL OR s.topic = ANY ($5::text[]) ORDER BY k.due_at LIMIT $2::integer
)
UPDATE {schema}.inbox_key k SET owner = $3::uuid, due_at = clock_timestamp() + $4::interval
FROM due WHERE k.consumer = due.consumer AND k.key_lock = due.key_lock
RETURNING k.key_lock, k.state = 'FAILED' OR due.owner IS NOT NULL`

	// nextDue is how many microseconds it takes until the next key becomes due, NULL if none will. Those that are due already and
	// are not taken are locked by a process that works on them, or for others. It is the first entry of the index for each consumer and
	// topic: min over all of them would read as many keys as wait.
	nextDue = store.TopicsOfKeys + `
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

	// setTopics goes with whatever puts messages in front of others, or takes them away there, in a statement before it.
	setTopics = `
UPDATE {schema}.inbox_key k SET topic = ` + topicOfFirst + `
FROM (SELECT DISTINCT u.consumer, u.key_lock FROM unnest($1::text[], $2::bigint[]) u(consumer, key_lock)) u
WHERE k.consumer = u.consumer AND k.key_lock = u.key_lock AND k.topic <> ` + topicOfFirst

	// lockKey waits for processes that store or handle messages of the key. See inbox_enter for the lock.
	lockKey = `SELECT FROM pg_advisory_xact_lock(hashint8extended($1::bigint, '{schema}.inbox'::regclass::oid::bigint))`

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

func (i *Inbox) claimKeys(ctx context.Context, consumer string, n int) (keys []parkedKey, err error) {
	ctx, cancel := i.bounded(ctx)
	defer cancel()
	rows := i.sql.Query(ctx, i.units.DB(ctx), claimKeys, []string{consumer}, n, i.owner, i.cfg.ParkedLease, i.topicsOf(consumer))
	keys, err = pgsql.Collect(rows, func(scan pgsql.Scan, k *parkedKey) error {
		k.consumer = consumer
		return scan(&k.lock, &k.doubtful)
	})
	if err != nil {
		return nil, fmt.Errorf("inbox: take keys of consumer %s: %w", consumer, pgsql.Explain(err))
	}
	return keys, nil
}

// nextDue returns how long to wait for the next key, at most limit.
func (i *Inbox) nextDue(ctx context.Context, consumers []string, limit time.Duration) (time.Duration, error) {
	var wait *int64
	if err := i.sql.QueryRow(ctx, i.units.DB(ctx), nextDue, []any{consumers}, &wait); err != nil {
		return limit, fmt.Errorf("inbox: look for the next key: %w", pgsql.Explain(err))
	}
	if wait == nil {
		return limit, nil
	}
	return time.Duration(min(*wait, limit.Microseconds())) * time.Microsecond, nil // a Duration holds 292 years
}

// shortestWait keeps a process from asking all the time, whatever the keys look like that it cannot take.
const shortestWait = 10 * time.Millisecond

func (i *Inbox) renewKeys(ctx context.Context, keys []parkedKey) error {
	consumers, locks := make([]string, len(keys)), make([]int64, len(keys))
	for n, k := range keys {
		consumers[n], locks[n] = k.consumer, k.lock
	}
	_, err := i.sql.Exec(ctx, i.units.DB(ctx), renewKeys, i.owner, consumers, locks, i.cfg.ParkedLease)
	return err
}

func (i *Inbox) handBackKey(ctx context.Context, k parkedKey, wait time.Duration) error {
	_, err := i.sql.Exec(ctx, i.units.DB(ctx), handBackKey, k.consumer, k.lock, i.owner, wait)
	return err
}

// freeKey takes the lock and lets the key go on; see the statement.
func (i *Inbox) freeKey(ctx context.Context, tx bun.IDB, consumer string, lock int64) error {
	for _, s := range []struct {
		statement string
		args      []any
	}{{lockKey, []any{lock}}, {freeKey, []any{consumer, lock}}} {
		if _, err := i.sql.Exec(ctx, tx, s.statement, s.args...); err != nil {
			return fmt.Errorf("inbox: free a key of consumer %s: %w", consumer, pgsql.Explain(err))
		}
	}
	return nil
}
