package main

import (
	"context"
	"fmt"
)

// fullTables are tables of an installation in which a great deal waits, for statements that must not depend on it.
type fullTables struct {
	waiting int // events
	dead    int // dead letters of the outbox, and as many of consumers; a tenth of it held, and parked
	answers int // idempotency keys
}

// fill lets the server generate the rows, which is faster than to send them. There are as many different keys as in a large installation.
func (f fullTables) fill(ctx context.Context, s *schema) error {
	tenth := max(f.dead/10, 1)
	for _, step := range []struct {
		what, statement string
		rows            int
	}{
		{"events that wait", fullWaiting, f.waiting}, {"held events", fullHeld, tenth}, {"blocked keys", fullBlocks, tenth},
		{"dead letters of the outbox", fullDead, f.dead}, {"dead letters of consumers", fullDeadMessages, f.dead},
		{"parked messages", fullParked, tenth}, {"keys of parked messages", fullKeys, tenth}, {"idempotency keys", fullAnswers, f.answers},
	} {
		if step.rows == 0 {
			continue
		}
		progressf("filling: %d %s", step.rows, step.what)
		if err := s.exec(ctx, fmt.Sprintf(step.statement, step.rows)); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return s.exec(ctx, "VACUUM ANALYZE outbox", "VACUUM ANALYZE outbox_held", "VACUUM ANALYZE outbox_dead", "VACUUM ANALYZE outbox_block",
		"VACUUM ANALYZE inbox_dead", "VACUUM ANALYZE inbox_parked", "VACUUM ANALYZE inbox_key", "VACUUM ANALYZE idempotency_keys")
}

const (
	fullEvent = `seq, id, occurred_at, created_at, aggregate_version, schema_version, retry_count, crashes, aggregate_type, aggregate_id,
	content_type, event_metadata, lane, tenant_id, topic, event_type, source, ordering_key, payload`

	fullWaiting = `INSERT INTO outbox (` + fullEvent + `)
SELECT nextval('outbox_seq'), gen_random_uuid(), now(), now() - n * interval '10 ms', 1, 1, 0, 0, 'order', 'o-' || n %% 50000, 'application/json', '{}',
	n %% 64, 'tenant-' || n %% 500, 'topic-' || n %% 20, 'type-' || n %% 40, 'bench', 'tenant|order|o-' || n %% 50000, '\x7b7d'
FROM generate_series(1, %d) n`
	fullHeld = `INSERT INTO outbox_held (` + fullEvent + `, retry_after)
SELECT nextval('outbox_seq'), gen_random_uuid(), now(), now() - n * interval '10 ms', 1, 1, n %% 3, 0, 'order', 'o-' || n, 'application/json', '{}',
	n %% 64, 'tenant-' || n %% 500, 'topic-' || n %% 20, 'type-' || n %% 40, 'bench', 'tenant|order|h-' || n, '\x7b7d', now() + n * interval '1 s'
FROM generate_series(1, %d) n`
	fullBlocks = `INSERT INTO outbox_block (lane, ordering_key, head_seq, state)
SELECT n %% 64, 'tenant|order|h-' || n, 0, (ARRAY['dead', 'failed'])[1 + n %% 2] FROM generate_series(1, %d) n`
	fullDead = `INSERT INTO outbox_dead (` + fullEvent + `, died_at, error_message, fingerprint)
SELECT nextval('outbox_seq'), gen_random_uuid(), now(), now() - n * interval '10 ms', 1, 1, 5, 0, 'order', 'o-' || n %% 50000, 'application/json', '{}',
	n %% 64, 'tenant-' || n %% 500, 'topic-' || n %% 20, 'type-' || n %% 40, 'bench', 'tenant|order|o-' || n %% 50000, '\x7b7d',
	now() - n * interval '80 ms', 'publish topic: schema ' || n %% 7 || ' is incompatible: field "total" of order ' || n || ' has no default',
	left(md5('type-' || n %% 40), 16)
FROM generate_series(1, %d) n`
	fullDeadMessages = `INSERT INTO inbox_dead (message_key, consumer, tenant_id, source, message_id, event_type, topic, ordering_key, content_type, payload,
	error_message, key_lock, seq, holds, died_at, attempts, fingerprint)
SELECT gen_random_uuid(), 'consumer-' || n %% 20, 'tenant-' || n %% 500, 'bench', n::text, 'type-' || n %% 40, 'topic-' || n %% 20, 'k' || n,
	'application/json', '\x7b7d', 'step ' || n %% 5 || ' failed: no row with id ' || n, n, n, false, now() - n * interval '80 ms', 3,
	left(md5('consumer-' || n %% 20 || 'type-' || n %% 40), 16)
FROM generate_series(1, %d) n`
	fullParked = `INSERT INTO inbox_parked (consumer, key_lock, message_key, tenant_id, source, message_id, event_type, topic, content_type, payload,
	attempts, error_message, cause_since, fingerprint)
SELECT 'consumer-' || n %% 20, n / 2, gen_random_uuid(), 'tenant-' || n %% 500, 'bench', n::text, 'type-' || n %% 40, 'topic-' || n %% 20,
	'application/json', '\x7b7d', CASE n / 2 %% 2 WHEN 0 THEN 3 ELSE 0 END, CASE n / 2 %% 2 WHEN 0 THEN 'no row with id ' || n ELSE '' END,
	CASE n / 2 %% 2 WHEN 0 THEN now() - n * interval '10 ms' END,
	CASE n / 2 %% 2 WHEN 0 THEN left(md5('consumer-' || n %% 20 || 'type-' || n %% 40), 16) ELSE '' END
FROM generate_series(1, %d) n`
	fullKeys = `INSERT INTO inbox_key (consumer, key_lock, tenant_id, state, due_at)
SELECT consumer, key_lock, tenant_id, (ARRAY['FAILED', 'WAITING'])[1 + key_lock %% 2], now() FROM (
	SELECT consumer, key_lock, min(tenant_id) AS tenant_id FROM inbox_parked GROUP BY consumer, key_lock LIMIT %d) k`
	fullAnswers = `INSERT INTO idempotency_keys (key_hash, tenant_id, state, fingerprint_tag, fingerprint, expires_at, status, headers, body)
SELECT decode(md5(n::text), 'hex'), 'tenant-' || n %% 500, 'completed', 'bench', '', now() + n * interval '10 ms', 200, '{}', '\x7b7d'
FROM generate_series(1, %d) n`
)
