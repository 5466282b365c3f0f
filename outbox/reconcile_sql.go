package outbox

const (
	lanesWithHeld = `
SELECT l.lane FROM {schema}.outbox_lane l
WHERE (SELECT h.seq FROM {schema}.outbox_held h WHERE h.lane = l.lane ORDER BY h.seq LIMIT 1) IS NOT NULL
	OR (SELECT b.ordering_key FROM {schema}.outbox_block b WHERE b.lane = l.lane ORDER BY b.ordering_key LIMIT 1) IS NOT NULL`

	// lookAtKeys jumps from key to key, however many rows each has. A key is wrong if its rows are held without a block; if
	// its block is not that of a dead letter and nothing is held, or the first row that is waits for ever; if its block is
	// that of a dead letter and there is none, or a row is due all the same.
	//
	// All of it is one snapshot, and everybody changes these tables together, so what is seen here is not a state between
	// two steps of somebody.
	lookAtKeys = `
WITH RECURSIVE k (n, lane, ordering_key) AS (
	SELECT 0, $1::smallint, $2::text
	UNION ALL
	SELECT k.n + 1, k.lane, least(
		(SELECT CASE WHEN x.lane = k.lane THEN x.ordering_key END FROM (
			SELECT h.lane, h.ordering_key FROM {schema}.outbox_held h
			WHERE (h.lane, h.ordering_key) > (k.lane, k.ordering_key) ORDER BY h.lane, h.ordering_key, h.seq LIMIT 1) x),
		(SELECT CASE WHEN x.lane = k.lane THEN x.ordering_key END FROM (
			SELECT b.lane, b.ordering_key FROM {schema}.outbox_block b
			WHERE (b.lane, b.ordering_key) > (k.lane, k.ordering_key) ORDER BY b.lane, b.ordering_key LIMIT 1) x))
	FROM k WHERE k.n < 1000 AND k.ordering_key IS NOT NULL)
SELECT k.ordering_key, CASE
		WHEN b.state IS NULL THEN true
		WHEN b.state = 'dead' THEN f.retry_after < 'infinity' IS TRUE
			OR NOT EXISTS (SELECT FROM {schema}.outbox_dead d WHERE d.lane = b.lane AND d.seq = b.head_seq)
		ELSE coalesce(f.retry_after = 'infinity', true) END AS wrong, k.n = 1000
FROM k
LEFT JOIN LATERAL (
	SELECT x.lane, x.ordering_key, x.state, x.head_seq FROM {schema}.outbox_block x
	WHERE (x.lane, x.ordering_key) >= (k.lane, k.ordering_key) ORDER BY x.lane, x.ordering_key LIMIT 1) b
	ON b.lane = k.lane AND b.ordering_key = k.ordering_key
LEFT JOIN LATERAL (` + headOfKey + `) f ON f.lane = k.lane AND f.ordering_key = k.ordering_key
WHERE k.n > 0 AND k.ordering_key IS NOT NULL`

	// The ORDER BY is that of the index of the keys, so that the planner takes it: in the primary key the rows that follow
	// others lie between.
	lookAtUnordered = `
SELECT seq, retry_after = 'infinity', row_number() OVER (ORDER BY seq) = 1000 FROM (
	SELECT seq, retry_after FROM {schema}.outbox_held WHERE lane = $1 AND ordering_key IS NULL AND seq > $2
	ORDER BY lane, ordering_key, seq LIMIT 1000) x`

	lookAtDue = `
SELECT h.seq, EXISTS (SELECT FROM (` + headOfKey + `) f WHERE f.lane = k.lane AND f.ordering_key = k.ordering_key AND f.seq < h.seq), false
FROM (
	SELECT lane, ordering_key, seq FROM {schema}.outbox_held WHERE lane = $1 AND retry_after <= (SELECT clock_timestamp())
	ORDER BY retry_after LIMIT 1000) h CROSS JOIN LATERAL (SELECT h.lane, h.ordering_key) k
WHERE h.ordering_key IS NOT NULL`

	// keyHeads are the given keys of a lane with their first held row, if there is one.
	keyHeads = `
WITH k AS (SELECT $1::smallint AS lane, u.ordering_key FROM unnest($2::text[]) u(ordering_key)),
heads AS MATERIALIZED (
	SELECT k.lane, k.ordering_key, f.seq, f.retry_after
	FROM k LEFT JOIN LATERAL (` + headOfKey + `) f ON f.lane = k.lane AND f.ordering_key = k.ordering_key)`

	// addBlocks blocks keys with held rows. Behind a dead letter they wait for an operator: what leaves too late can
	// be mended, what leaves too early cannot.
	addBlocks = keyHeads + `
INSERT INTO {schema}.outbox_block (lane, ordering_key, head_seq, state)
SELECT f.lane, f.ordering_key, coalesce(min(d.seq), f.seq), CASE WHEN count(d.seq) > 0 THEN 'dead' ELSE 'draining' END
FROM heads f LEFT JOIN {schema}.outbox_dead d ON d.lane = f.lane AND d.ordering_key = f.ordering_key AND d.seq < f.seq
WHERE f.seq IS NOT NULL GROUP BY f.lane, f.ordering_key, f.seq
ON CONFLICT DO NOTHING`

	// freeBlocks lets keys go on whose dead letter nobody can replay or discard, because it is not there.
	freeBlocks = `
UPDATE {schema}.outbox_block b SET state = 'draining'
WHERE b.lane = $1 AND b.ordering_key = ANY ($2::text[]) AND b.state = 'dead'
	AND NOT EXISTS (SELECT FROM {schema}.outbox_dead d WHERE d.lane = b.lane AND d.seq = b.head_seq)`

	// liftBlocks lifts blocks behind which nothing is held.
	liftBlocks = keyHeads + `
DELETE FROM {schema}.outbox_block b USING heads f
WHERE f.seq IS NULL AND b.lane = f.lane AND b.ordering_key = f.ordering_key AND b.state = 'failed'`

	// liftDrained is liftBlocks for what a discard leaves until the owner of the lane looks: nothing is wrong with it.
	liftDrained = keyHeads + `
DELETE FROM {schema}.outbox_block b USING heads f
WHERE f.seq IS NULL AND b.lane = f.lane AND b.ordering_key = f.ordering_key AND b.state = 'draining'`

	// calmHeads has rows wait that are due under the block of a dead letter.
	calmHeads = keyHeads + `
UPDATE {schema}.outbox_held h SET retry_after = 'infinity' FROM heads f JOIN {schema}.outbox_block b USING (lane, ordering_key)
WHERE b.state = 'dead' AND f.retry_after < 'infinity' AND h.lane = f.lane AND h.seq = f.seq`

	wakeKeys = keyHeads + `
UPDATE {schema}.outbox_held h SET retry_after = greatest(clock_timestamp(), h.not_before)
FROM heads f JOIN {schema}.outbox_block b USING (lane, ordering_key)
WHERE b.state <> 'dead' AND f.retry_after = 'infinity' AND h.lane = f.lane AND h.seq = f.seq`

	wakeUnordered = `
UPDATE {schema}.outbox_held h SET retry_after = greatest(clock_timestamp(), h.not_before)
WHERE h.lane = $1 AND h.seq = ANY ($2::bigint[]) AND h.ordering_key IS NULL AND h.retry_after = 'infinity'`

	// calmRows has rows wait that are due although an earlier one of their key is held. They are due again when that one
	// has left.
	calmRows = `
UPDATE {schema}.outbox_held h SET retry_after = 'infinity'
FROM {schema}.outbox_held k CROSS JOIN LATERAL (` + headOfKey + `) f
WHERE k.lane = $1 AND k.seq = ANY ($2::bigint[]) AND f.lane = k.lane AND f.ordering_key = k.ordering_key AND f.seq < k.seq
	AND h.lane = k.lane AND h.seq = k.seq AND h.retry_after < 'infinity'`
)
