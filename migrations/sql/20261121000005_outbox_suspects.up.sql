-- Which rows are on their way beyond claimed_seq: those that were taken out of turn, because what is in front of them
-- belongs to a paused topic or to a tenant with a long backlog. Whoever takes the lane over from an owner that vanished
-- must know them, and claimed_seq cannot say it without naming all that lies between.
ALTER TABLE outbox_lane ADD COLUMN picked bigint[];

-- As before, with the picked rows.
CREATE OR REPLACE VIEW outbox_messages AS
SELECT o.id, o.tenant_id, o.aggregate_id, o.aggregate_type, o.aggregate_version, o.event_type, o.topic, o.occurred_at,
       o.payload, o.event_metadata, o.routing_key, o.schema_id, o.schema_version,
       CASE WHEN (o.seq <= l.claimed_seq OR o.seq = ANY (l.picked)) AND l.owner IS NOT NULL AND l.lease_until > clock_timestamp()
            THEN 'PUBLISHING' ELSE 'NEW' END AS status,
       o.retry_count::integer AS retry_count, NULL::timestamptz AS retry_after, NULL::text AS error_message,
       o.created_at, NULL::timestamptz AS sent_at, o.seq AS sequence
FROM outbox o LEFT JOIN outbox_lane l ON l.lane = o.lane
UNION ALL
SELECT h.id, h.tenant_id, h.aggregate_id, h.aggregate_type, h.aggregate_version, h.event_type, h.topic, h.occurred_at,
       h.payload, h.event_metadata, h.routing_key, h.schema_id, h.schema_version,
       CASE WHEN h.retry_count > 0 THEN 'FAILED' ELSE 'NEW' END,
       h.retry_count, NULLIF(h.retry_after, 'infinity'), h.error_message, h.created_at, NULL, h.seq
FROM outbox_held h
UNION ALL
SELECT d.id, d.tenant_id, d.aggregate_id, d.aggregate_type, d.aggregate_version, d.event_type, d.topic, d.occurred_at,
       d.payload, d.event_metadata, d.routing_key, d.schema_id, d.schema_version,
       'DEAD', d.retry_count, NULL, d.error_message, d.created_at, NULL, d.seq
FROM outbox_dead d
UNION ALL
SELECT s.id, s.tenant_id, s.aggregate_id, s.aggregate_type, s.aggregate_version, s.event_type, s.topic, s.occurred_at,
       s.payload, s.event_metadata, s.routing_key, s.schema_id, s.schema_version,
       'SENT', s.retry_count, NULL, NULL, s.created_at, s.sent_at, s.seq
FROM outbox_sent s;

INSERT INTO oncebox_migrations (name) VALUES ('20261121000005_outbox_suspects.up.sql');
