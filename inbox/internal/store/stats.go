package store

import "github.com/oncebox/oncebox/operator/failures"

const (
	// Troubled lists the consumers that have a key that does not flow, or a dead letter.
	Troubled = `
WITH RECURSIVE stopped (consumer) AS (
	SELECT min(consumer) FROM {schema}.inbox_key
	UNION ALL SELECT (SELECT min(k.consumer) FROM {schema}.inbox_key k WHERE k.consumer > s.consumer) FROM stopped s WHERE s.consumer IS NOT NULL
), bereft (consumer) AS (
	SELECT min(consumer) FROM {schema}.inbox_dead
	UNION ALL SELECT (SELECT min(d.consumer) FROM {schema}.inbox_dead d WHERE d.consumer > b.consumer) FROM bereft b WHERE b.consumer IS NOT NULL
)
SELECT consumer FROM (SELECT consumer FROM stopped UNION SELECT consumer FROM bereft) c WHERE consumer IS NOT NULL ORDER BY consumer`

	// Statistics reads a bounded number of rows, because counting a backlog of millions would itself be a heavy load. It runs once for each
	// consumer. For a single statement about all consumers PostgreSQL would use its JIT compiler (PostgreSQL, chapter 30), which took 0.24
	// s.
	Statistics = `
SELECT k.waiting, k.failed, k.dead,
	(SELECT count(*) FROM (SELECT FROM {schema}.inbox_parked p WHERE p.consumer = $1::text LIMIT $2::int) x),
	coalesce(extract(epoch FROM clock_timestamp() - (SELECT min(p.parked_at) FROM {schema}.inbox_parked p WHERE p.consumer = $1::text)), 0)::float8,
	(SELECT count(*) FROM (SELECT FROM {schema}.inbox_dead d WHERE d.consumer = $1::text LIMIT $2::int) x)
FROM (
	SELECT count(*) FILTER (WHERE x.state = 'WAITING') AS waiting, count(*) FILTER (WHERE x.state = 'FAILED') AS failed,
		count(*) FILTER (WHERE x.state = 'DEAD') AS dead
	FROM (SELECT k.state FROM {schema}.inbox_key k WHERE k.consumer = $1::text LIMIT $2::int) x
) k`

	// Menu counts up to 1,001 dead letters, keys that fail among the first 10,001 that wait, and paused consumers. It runs for each page of the console.
	Menu = `
SELECT (SELECT count(*) FROM (SELECT FROM {schema}.inbox_dead LIMIT 1001) x),
	(SELECT count(*) FROM (
		SELECT FROM (
			SELECT k.state FROM {schema}.inbox_key k WHERE k.state <> 'DEAD' ORDER BY k.consumer, k.topic, k.due_at LIMIT 10001) k
		WHERE k.state = 'FAILED' LIMIT 1001) x),
	(SELECT count(*) FROM {schema}.inbox_pause WHERE ends_at IS NULL OR ends_at > clock_timestamp())`
)

// FailingMessages says how package failures reads the messages that failed and are tried again: of each key the first one.
func FailingMessages() failures.Table {
	return failures.Table{
		Name: "{schema}.inbox_parked", Since: "cause_since",
		// LIMIT keeps the planner to one look-up for each row. It would read all keys, of which many may wait without a failure.
		Join: `CROSS JOIN LATERAL (
			SELECT x.state, x.due_at, x.owner FROM {schema}.inbox_key x WHERE x.consumer = f.consumer AND x.key_lock = f.key_lock LIMIT 1) k`,
		// Only the first message of a key is tried, so only that has a fingerprint. A dead letter that was replayed may come before it later.
		Counts: "k.state = 'FAILED'",
		// A key with an owner is being tried, and due_at is when another process may take it over.
		Next:    "CASE WHEN k.owner IS NULL THEN k.due_at END",
		Example: failure + ", f.ordering_key IS NOT NULL, f.attempts, f.error_message, f.failed_by",
		By:      "f.failed_by",
	}
}

// DeadMessages says how package failures reads dead letters.
func DeadMessages() failures.Table {
	return failures.Table{
		Name: "{schema}.inbox_dead", Since: "died_at", Counts: "true", Next: "NULL::timestamptz",
		Example: failure + ", f.holds, f.attempts, f.error_message, f.failed_by",
	}
}

// failure lists the columns by which a message is known.
const failure = `f.message_id, f.message_key::text, f.consumer, f.tenant_id, f.source, f.topic, f.event_type, coalesce(f.ordering_key, '')`
