package store

import (
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/messaging"
)

// DeadArgs returns the arguments of StoreDead. seq is the place of the message in its key; nil: the last.
func (h *Handle) DeadArgs(id Identity, m *messaging.Message, attempts int, cause error, holds bool, seq *int64) []any {
	reason := pgsql.CleanText(cause.Error())
	args := []any{id.KeyLock(), attempts, reason, holds, seq, Fingerprint(id.Consumer, m.Type, reason), h.Process}
	return append(args, MessageArgs(id, m)...)
}

const (
	// StoreDead has the arguments key_lock, attempts, error_message, holds, seq, fingerprint, failed_by and MessageArgs.
	StoreDead = `
INSERT INTO {schema}.inbox_dead (key_lock, attempts, error_message, holds, seq, fingerprint, failed_by, {message})
VALUES ($1::bigint, $2::integer, $3::text, $4::boolean, coalesce($5::bigint, nextval('{schema}.inbox_seq')), $6::text, $7::text, {message from $8})
` + DiedAgain

	// DiedAgain handles a dead letter whose entry has expired and whose message came again and died again. The letter keeps its place in
	// the key that it holds.
	DiedAgain = `
ON CONFLICT (message_key, consumer, tenant_id, source) DO UPDATE
SET attempts = inbox_dead.attempts + excluded.attempts, error_message = excluded.error_message, died_at = excluded.died_at,
	fingerprint = excluded.fingerprint, failed_by = excluded.failed_by, holds = inbox_dead.holds OR excluded.holds,
	key_lock = CASE WHEN inbox_dead.holds THEN inbox_dead.key_lock ELSE excluded.key_lock END,
	seq = CASE WHEN inbox_dead.holds THEN inbox_dead.seq ELSE excluded.seq END`

	deadColumns = `{message read}, attempts, error_message, fingerprint, failed_by, died_at, holds`

	ListDead = `
SELECT ` + deadColumns + ` FROM (SELECT {message but payload}, attempts, error_message, fingerprint, failed_by, died_at, holds FROM {schema}.inbox_dead) d
WHERE %s ORDER BY d.died_at, d.message_key, d.consumer, d.tenant_id, d.source LIMIT %s`

	// AfterDead is the condition on the letters that follow a given letter in a list.
	AfterDead = "(d.died_at, d.message_key, d.consumer, d.tenant_id, d.source) > (%s::timestamptz, %s::uuid, %s::text, %s::text, %s::text)"

	ShowDead = `SELECT ` + deadColumns + ` FROM {schema}.inbox_dead d WHERE %s`

	CountDead = `SELECT count(*) FROM (SELECT FROM {schema}.inbox_dead d WHERE %s LIMIT %s) x`

	ListDeadErrors = `
SELECT d.died_at, d.consumer, d.tenant_id, d.topic, d.event_type, left(d.error_message, 300), d.fingerprint
FROM {schema}.inbox_dead d ORDER BY d.died_at DESC, d.message_key DESC LIMIT $1::int`
)

const (
	// PickDead chooses a batch, ordered by the locks of the keys and, within a key, by the order of its messages.
	PickDead = `
SELECT d.message_key::text, d.consumer, d.tenant_id, d.source, d.key_lock, d.seq FROM {schema}.inbox_dead d
WHERE %s ORDER BY d.key_lock, d.seq LIMIT %s`

	// LockKeys takes the locks in an order that all processes share. From here on no other process changes these keys, their parked
	// messages, or their dead letters. The next step must be another statement, because only that sees what was committed while this one
	// waited.
	LockKeys = `
SELECT pg_advisory_xact_lock(hashint8extended(l.key_lock, '{schema}.inbox'::regclass::oid::bigint))
FROM (SELECT DISTINCT u.key_lock FROM unnest($1::bigint[]) u(key_lock) ORDER BY 1) l`

	takeDead = `
WITH d AS (
	DELETE FROM {schema}.inbox_dead d USING unnest($4::uuid[], $5::text[], $6::text[], $7::text[], $8::bigint[]) u(m, c, t, s, l)
	WHERE d.message_key = u.m AND d.consumer = u.c AND d.tenant_id = u.t AND d.source = u.s AND d.key_lock = u.l RETURNING d.*)`

	noteDead = `, noted AS (` + NoteDeeds + `d ORDER BY key_lock, seq)`

	// released is the condition that a key k, which waits for a decision, is held by a dead letter in d and not by another one.
	released = `
	k.state = 'DEAD' AND NOT EXISTS (SELECT FROM {schema}.inbox_dead o
		WHERE o.consumer = k.consumer AND o.key_lock = k.key_lock AND o.holds
			AND (o.message_key, o.consumer, o.tenant_id, o.source) NOT IN (SELECT message_key, consumer, tenant_id, source FROM d))`

	// ReplayDead parks dead letters in their former places. It makes a new entry where the entry has expired, so that a copy that comes now
	// is not handled as well. A dead letter that holds no key, and has an entry younger than its death, was handled in the meantime: it is
	// not parked. A key that stands still for another reason, or that a process works on, is not changed.
	ReplayDead = takeDead + noteDead + `,
entered AS (
	INSERT INTO {schema}.inbox AS i (message_key, consumer, tenant_id, source)
	SELECT message_key, consumer, tenant_id, source FROM d ORDER BY 1, 3, 4
	ON CONFLICT (message_key, consumer, tenant_id, source) DO UPDATE SET processed_at = i.processed_at
	RETURNING message_key, consumer, tenant_id, source, processed_at),
open AS (
	SELECT d.* FROM d JOIN entered e USING (message_key, consumer, tenant_id, source)
	WHERE d.holds OR e.processed_at <= d.died_at OR e.processed_at = now()),
parked AS (
	INSERT INTO {schema}.inbox_parked ({message}, key_lock, seq) SELECT {message}, key_lock, seq FROM open
	ON CONFLICT (message_key, consumer, tenant_id, source) DO UPDATE SET parked_at = clock_timestamp()),
keys AS (
	INSERT INTO {schema}.inbox_key AS k (consumer, key_lock, tenant_id, ordering_key, state, due_at)
	SELECT DISTINCT ON (consumer, key_lock) consumer, key_lock, tenant_id, ordering_key, 'WAITING', clock_timestamp()
	FROM open ORDER BY consumer, key_lock, seq
	ON CONFLICT (consumer, key_lock) DO UPDATE SET state = 'WAITING', due_at = excluded.due_at WHERE` + released + `)
SELECT count(*) FROM d`

	// DiscardDead deletes dead letters. A key that one of them held goes on with the next parked message, or flows if there is none.
	DiscardDead = takeDead + noteDead + freeKeys

	freeKeys = `,
free AS MATERIALIZED (
	SELECT k.consumer, k.key_lock, EXISTS (
		SELECT FROM {schema}.inbox_parked p WHERE p.consumer = k.consumer AND p.key_lock = k.key_lock) AS waits
	FROM {schema}.inbox_key k JOIN (SELECT DISTINCT consumer, key_lock FROM d) x USING (consumer, key_lock) WHERE` + released + `),
waiting AS (
	UPDATE {schema}.inbox_key k SET state = 'WAITING', due_at = clock_timestamp()
	FROM free f WHERE k.consumer = f.consumer AND k.key_lock = f.key_lock AND f.waits),
flowing AS (
	DELETE FROM {schema}.inbox_key k USING free f WHERE k.consumer = f.consumer AND k.key_lock = f.key_lock AND NOT f.waits)
SELECT count(*) FROM d`

	// ForgetDead is DiscardDead with an entry in the audit for each group of letters.
	ForgetDead = takeDead + `, noted AS (
	INSERT INTO {schema}.oncebox_audit (part, actor, action, reason, events, consumer, tenant_id, topic, event_type)
	SELECT 'inbox', $1::text, $2::text, $3::text, count(*), consumer, tenant_id, topic, event_type FROM d GROUP BY consumer, tenant_id, topic, event_type)` +
		freeKeys

	// EditDead gives the dead letters at $1 to $5 another payload.
	EditDead = `UPDATE {schema}.inbox_dead d SET payload = $6::bytea
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::bigint[]) u(m, c, t, s, l)
WHERE d.message_key = u.m AND d.consumer = u.c AND d.tenant_id = u.t AND d.source = u.s AND d.key_lock = u.l`
)

// NoteDeeds adds an entry to the audit for each message of the table expression that follows. Arguments: actor, action, reason.
const NoteDeeds = `
	INSERT INTO {schema}.oncebox_audit (part, actor, action, reason, consumer, event_id, tenant_id, source, message_id, topic, event_type)
	SELECT 'inbox', $1::text, $2::text, $3::text, consumer, message_key, tenant_id, source, message_id, topic, event_type FROM `
