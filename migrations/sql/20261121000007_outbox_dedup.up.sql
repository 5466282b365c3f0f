-- The keys that producers gave their events (event.WithDedupKey), each with the first event of that key. A later event of
-- the same key is not stored; it is counted here.
CREATE TABLE outbox_dedup (
    tenant_id  text        NOT NULL,
    dedup_key  text        NOT NULL,
    event_id   uuid        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    repeats    bigint      NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, dedup_key)
);
CREATE INDEX outbox_dedup_age ON outbox_dedup (created_at);

INSERT INTO oncebox_migrations (name) VALUES ('20261121000007_outbox_dedup.up.sql');
