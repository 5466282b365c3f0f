-- What operators did with parked messages and dead letters, and what the retention removed. Written in the same transaction
-- as the deed.
CREATE TABLE inbox_audit (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor       text        NOT NULL CHECK (actor <> ''),
    action      text        NOT NULL, -- replay, discard, retry, give_up, expire
    consumer    text        NOT NULL,
    message_key uuid,                 -- NULL: a row of the retention, about as many messages as it says
    messages    bigint      NOT NULL DEFAULT 1 CHECK (messages > 0),
    tenant_id   text        NOT NULL,
    source      text        NOT NULL DEFAULT '',
    message_id  text        NOT NULL DEFAULT '',
    topic       text        NOT NULL,
    event_type  text        NOT NULL,
    reason      text        NOT NULL DEFAULT ''
);
CREATE INDEX inbox_audit_message ON inbox_audit (message_key, id) WHERE message_key IS NOT NULL;
CREATE INDEX inbox_audit_consumer ON inbox_audit (consumer, id);

-- Every dead letter has a place in its key. Those that have none died before anything was parked, so theirs is before all
-- that was; and a process of the release before gives none.
UPDATE inbox_dead d SET seq = o.nth - 1 - o.total
FROM (SELECT message_key, consumer, tenant_id, source, row_number() OVER (ORDER BY died_at, message_key) AS nth, count(*) OVER () AS total
      FROM inbox_dead WHERE seq IS NULL) o
WHERE (d.message_key, d.consumer, d.tenant_id, d.source) = (o.message_key, o.consumer, o.tenant_id, o.source);
ALTER TABLE inbox_dead ALTER COLUMN seq SET DEFAULT nextval('inbox_seq'), ALTER COLUMN seq SET NOT NULL;

-- The order in which many are replayed: that of the locks of their keys, and of each key.
CREATE INDEX inbox_dead_key ON inbox_dead (key_lock, seq);
-- Lists of dead letters, by one property or none, each in the order of their pages; inbox_dead_order is that of a consumer.
CREATE INDEX inbox_dead_age ON inbox_dead (died_at, message_key);
CREATE INDEX inbox_dead_tenant ON inbox_dead (tenant_id, died_at, message_key);
CREATE INDEX inbox_dead_topic ON inbox_dead (topic, died_at, message_key);
CREATE INDEX inbox_dead_type ON inbox_dead (event_type, died_at, message_key);

INSERT INTO oncebox_migrations (name) VALUES ('20261121000011_inbox_audit.up.sql');
