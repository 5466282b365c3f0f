package dead

import "github.com/oncebox/oncebox/internal/outboxdb"

const (
	deadColumns = outboxdb.RowColumns + `, died_at, coalesce(error_message, ''), fingerprint, ` + outboxdb.HoldsKey

	listDead = `
SELECT ` + deadColumns + ` FROM (SELECT {columns but payload}, NULL::bytea AS payload, died_at, error_message, fingerprint FROM {schema}.outbox_dead) d
WHERE %s ORDER BY d.died_at, d.seq LIMIT %s`
	showDead  = `SELECT ` + deadColumns + ` FROM {schema}.outbox_dead d WHERE %s`
	countDead = `SELECT count(*) FROM (SELECT FROM {schema}.outbox_dead d WHERE %s LIMIT %s) x`

	// heldBehind lists the events of the key that a dead letter holds.
	heldBehind = `
SELECT ` + outboxdb.RowColumns + ` FROM (SELECT {columns but payload}, NULL::bytea AS payload FROM {schema}.outbox_held) h
WHERE (h.lane, h.ordering_key) = (SELECT d.lane, d.ordering_key FROM {schema}.outbox_dead d WHERE %s) ORDER BY h.lane, h.ordering_key, h.seq LIMIT %s`

	listDeadErrors = `
SELECT d.died_at, '', d.tenant_id, d.topic, d.event_type, left(coalesce(d.error_message, ''), 300), d.fingerprint
FROM {schema}.outbox_dead d ORDER BY d.died_at DESC, d.seq DESC LIMIT $1::int`
)

const (
	// pickDead chooses a batch in the order of the lanes and, within a lane and thus within a key, of the sequence.
	pickDead = `
SELECT d.lane, d.seq, coalesce(d.ordering_key, '') FROM {schema}.outbox_dead d
WHERE %s ORDER BY d.lane, d.seq LIMIT %s`

	// touchLanes locks the lanes in the order in which everybody locks them. The new value of change makes their owners reload the
	// blocks. Until the transaction ends, no other transaction changes blocks, held or dead rows of these lanes.
	touchLanes = `
WITH mine AS MATERIALIZED (
	SELECT lane FROM {schema}.outbox_lane WHERE lane = ANY ($1::smallint[]) ORDER BY lane FOR NO KEY UPDATE)
UPDATE {schema}.outbox_lane l SET change = l.change + 1 FROM mine WHERE l.lane = mine.lane`

	takeDead = `
WITH ` + deleteDead + `,
noted AS (` + noteDeed + `)`

	deleteDead = `d AS (
	DELETE FROM {schema}.outbox_dead x USING unnest($4::smallint[], $5::bigint[]) a(lane, seq)
	WHERE x.lane = a.lane AND x.seq = a.seq RETURNING x.*)`

	// replayDead puts dead letters among the held rows, where wakeHeads makes the first one of each key due.
	//
	// A block whose head is another dead letter stays, because nobody has decided about that letter yet. A held row was the first
	// of its key until now; if it comes after a replayed one, it waits again. If it stayed due, it would be read and passed
	// over with each look.
	replayDead = takeDead + `,
keys AS MATERIALIZED (
	SELECT lane, ordering_key, min(seq) AS first FROM d WHERE ordering_key IS NOT NULL GROUP BY lane, ordering_key),
block AS (
	INSERT INTO {schema}.outbox_block AS b (lane, ordering_key, head_seq, state)
	SELECT lane, ordering_key, first, 'draining' FROM keys
	ON CONFLICT (lane, ordering_key) DO UPDATE
	SET state = 'draining', head_seq = least(b.head_seq, excluded.head_seq)
	WHERE b.state <> 'dead' OR NOT EXISTS (SELECT FROM {schema}.outbox_dead o
		WHERE o.lane = b.lane AND o.seq = b.head_seq AND o.seq <> ALL ($5::bigint[]))),
behind AS (
	UPDATE {schema}.outbox_held h SET retry_after = 'infinity'
	FROM keys k CROSS JOIN LATERAL (` + outboxdb.HeadOfKey + `) f
	WHERE f.lane = k.lane AND f.ordering_key = k.ordering_key AND f.seq > k.first AND f.retry_after < 'infinity'
		AND h.lane = f.lane AND h.seq = f.seq),
held AS (
	INSERT INTO {schema}.outbox_held ({columns}, retry_after)
	SELECT {columns anew}, CASE WHEN ordering_key IS NULL THEN greatest(clock_timestamp(), not_before) ELSE 'infinity' END FROM d)
SELECT count(*) FROM d`

	// discardDead deletes dead letters. A key that one of them blocked drains: wakeHeads makes its next row due, and the
	// owner of the lane lifts the block when the last one has left.
	discardDead = takeDead + freeKeys

	freeKeys = `,
block AS (
	UPDATE {schema}.outbox_block b SET state = 'draining' FROM d
	WHERE b.lane = d.lane AND b.ordering_key = d.ordering_key AND b.state = 'dead' AND b.head_seq = d.seq)
SELECT count(*) FROM d`

	// forgetDead is discardDead with an entry in the audit for each group of letters.
	forgetDead = `
WITH ` + deleteDead + `,
noted AS (
	INSERT INTO {schema}.oncebox_audit (part, actor, action, reason, events, tenant_id, topic, event_type)
	SELECT 'outbox', $1::text, $2::text, $3::text, count(*), tenant_id, topic, event_type FROM d GROUP BY tenant_id, topic, event_type)` +
		freeKeys

	// editDead gives the dead letters at $1, $2 another payload. Then they count as valid events.
	editDead = `UPDATE {schema}.outbox_dead d SET payload = $3::bytea, event_metadata = CASE
	WHEN jsonb_exists(event_metadata::jsonb, '` + outboxdb.Refused + `') THEN (event_metadata::jsonb - '` + outboxdb.Refused + `')::text ELSE event_metadata END
FROM unnest($1::smallint[], $2::bigint[]) a(lane, seq)
WHERE d.lane = a.lane AND d.seq = a.seq`

	// wakeHeads makes the first held row of each key due, unless a dead letter blocks the key. The condition on retry_after
	// stands in the search for the rows and not in the UPDATE. There the planner would choose the index on retry_after and read
	// all waiting rows of the lane; without it, the UPDATE uses the primary key.
	wakeHeads = `
WITH k AS (SELECT DISTINCT lane, ordering_key FROM unnest($1::smallint[], $2::text[]) u(lane, ordering_key)),
heads AS MATERIALIZED (
	SELECT k.lane, f.seq FROM k JOIN {schema}.outbox_block b USING (lane, ordering_key)
	CROSS JOIN LATERAL (` + outboxdb.HeadOfKey + `) f
	WHERE b.state <> 'dead' AND f.lane = k.lane AND f.ordering_key = k.ordering_key AND f.retry_after = 'infinity')
UPDATE {schema}.outbox_held h SET retry_after = greatest(clock_timestamp(), h.not_before)
FROM heads f WHERE h.lane = f.lane AND h.seq = f.seq`

	// noteDeed enters each dead letter of d. Arguments: actor, action, reason.
	noteDeed = `
	INSERT INTO {schema}.oncebox_audit (part, actor, action, reason, event_id, tenant_id, topic, event_type)
	SELECT 'outbox', $1::text, $2::text, $3::text, id, tenant_id, topic, event_type FROM d ORDER BY lane, seq`
)
