package store

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/cause"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/messaging"
)

// The states of a key that does not flow: the state of its first message.
const (
	KeyWaiting = "WAITING" // it has not been tried, or may be tried again because somebody said so
	KeyFailed  = "FAILED"  // it waits for its next try
	KeyDead    = "DEAD"    // it waits for somebody to decide
)

const (
	// storeParked parks messages, which get their numbers in the given order. A message may be parked or dead already, although its entry
	// had expired and it was entered anew. Then its time is set to that of the new entry, because an entry that is younger than a parked
	// message means that the message was handled meanwhile.
	storeParked = `
WITH again AS (
	UPDATE {schema}.inbox_dead d SET died_at = clock_timestamp() FROM unnest($6::uuid[], $7::text[], $8::text[], $9::text[]) u(m, c, t, s)
	WHERE d.message_key = u.m AND d.consumer = u.c AND d.tenant_id = u.t AND d.source = u.s
)
INSERT INTO {schema}.inbox_parked ({message}, key_lock, attempts, error_message, failing_since, fingerprint, cause_since, failed_by)
SELECT {message stored}, key_lock, attempts, error_message, CASE WHEN attempts > 0 THEN clock_timestamp() END,
	fingerprint, CASE WHEN fingerprint <> '' THEN clock_timestamp() END, CASE WHEN fingerprint <> '' THEN $5::text ELSE '' END
FROM unnest($1::bigint[], $2::integer[], $3::text[], $4::text[], {messages from $6})
	WITH ORDINALITY u(key_lock, attempts, error_message, fingerprint, {message}, nth)
WHERE NOT EXISTS (SELECT FROM {schema}.inbox_dead d
	WHERE d.message_key = u.message_key AND d.consumer = u.consumer AND d.tenant_id = u.tenant_id AND d.source = u.source)
ORDER BY u.nth
ON CONFLICT (message_key, consumer, tenant_id, source) DO UPDATE SET parked_at = clock_timestamp()`

	// stopKeys stops keys. If a key does not flow already, it stays as it is: the first transaction that stopped it has set when it may
	// run.
	stopKeys = `
INSERT INTO {schema}.inbox_key (consumer, key_lock, tenant_id, ordering_key, state, due_at, topic)
SELECT DISTINCT ON (u.key_lock) $1::text, u.key_lock, u.tenant, nullif(u.ordering, ''), $5::text,
	CASE $5::text WHEN 'DEAD' THEN 'infinity' ELSE clock_timestamp() + $6::interval END,
	coalesce((SELECT p.topic FROM {schema}.inbox_parked p WHERE p.consumer = $1::text AND p.key_lock = u.key_lock ORDER BY p.seq LIMIT 1), '')
FROM unnest($2::bigint[], $3::text[], $4::text[]) u(key_lock, tenant, ordering) ORDER BY u.key_lock
ON CONFLICT (consumer, key_lock) DO NOTHING`
)

// Fingerprint names the failures of a consumer whose errors have the same cause as reason. It is "" if there is no reason.
func Fingerprint(consumer, eventType, reason string) string {
	return cause.Place{Consumer: consumer, Type: Identifier(eventType)}.Fingerprint(reason)
}

// Parking is a message to be parked.
type Parking struct {
	ID       Identity
	Message  *messaging.Message
	Attempts int
	Cause    error // why it failed; nil: it has not
	// Behind says that other messages of the key come before it: it is not tried until they have left, so it is none of the failures of a cause.
	Behind bool
}

// parkedTable works on the messages that wait in the database.
type parkedTable struct{ *Handle }

// Park stores messages that were entered in the same transaction: from then on they wait here and not at the broker. It returns how many of
// them are parked now; the others are dead letters already.
func (t parkedTable) Park(ctx context.Context, tx bun.IDB, list ...Parking) (waiting int64, err error) {
	rows, locks, attempts := make([]row, len(list)), make([]int64, len(list)), make([]int, len(list))
	reasons, causes := make([]string, len(list)), make([]string, len(list))
	for n, p := range list {
		rows[n], locks[n], attempts[n] = newRow(p.ID, p.Message), p.ID.KeyLock(), p.Attempts
		if p.Cause == nil {
			continue
		}
		if reasons[n] = pgsql.CleanText(p.Cause.Error()); !p.Behind {
			causes[n] = Fingerprint(p.ID.Consumer, p.Message.Type, reasons[n])
		}
	}
	waiting, err = t.SQL.Exec(ctx, tx, storeParked, append([]any{locks, attempts, reasons, causes, t.Process}, messageArrays(rows)...)...)
	return waiting, Explain(err)
}

// Stop stops the keys of messages of one consumer.
func (t keyTable) Stop(ctx context.Context, tx bun.IDB, state string, wait time.Duration, ids ...Identity) error {
	locks, tenants, orderings := make([]int64, len(ids)), make([]string, len(ids)), make([]string, len(ids))
	for n, id := range ids {
		locks[n], tenants[n], orderings[n] = id.KeyLock(), id.Tenant, readable(id.Ordering)
	}
	_, err := t.SQL.Exec(ctx, tx, stopKeys, ids[0].Consumer, locks, tenants, orderings, state, wait)
	return Explain(err)
}
