-- Messages that wait in the database and not at the broker: a message that failed, those behind it in its key, and whatever a
-- durable consumer has stored. They run in the order of seq, key by key.
CREATE SEQUENCE inbox_seq;
CREATE TABLE inbox_parked (
    consumer          text        NOT NULL,
    key_lock          bigint      NOT NULL, -- hash of consumer and ordering key, or of the message's own key if it has no order
    seq               bigint      NOT NULL DEFAULT nextval('inbox_seq'), -- drawn under the key's lock
    message_key       uuid        NOT NULL,
    tenant_id         text        NOT NULL,
    source            text        NOT NULL,
    message_id        text        NOT NULL,
    event_type        text        NOT NULL,
    topic             text        NOT NULL,
    ordering_key      text,
    aggregate_type    text        NOT NULL DEFAULT '',
    aggregate_id      text        NOT NULL DEFAULT '',
    aggregate_version bigint      NOT NULL DEFAULT 0,
    sequence          bigint      NOT NULL DEFAULT 0,
    schema_id         text,
    schema_version    integer     NOT NULL DEFAULT 1,
    routing_key       text,
    content_type      text        NOT NULL,
    occurred_at       timestamptz,
    event_metadata    json        NOT NULL DEFAULT '{}',
    payload           bytea       NOT NULL,
    attempts          integer     NOT NULL DEFAULT 0 CHECK (attempts >= 0), -- tries that were begun
    error_message     text        NOT NULL DEFAULT '',                      -- of the last one
    parked_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    unknown_since     timestamptz, -- when a build first did not know its type or version, while it was parked; NULL: every build did
    PRIMARY KEY (consumer, key_lock, seq)
);
ALTER SEQUENCE inbox_seq OWNED BY inbox_parked.seq;
-- A copy never waits twice.
CREATE UNIQUE INDEX inbox_parked_message ON inbox_parked (message_key, consumer, tenant_id, source);

-- The keys that do not flow: later messages of theirs are parked. A key is here as long as messages of it are parked, or a
-- dead letter holds it; whoever changes that holds the key's lock.
CREATE TABLE inbox_key (
    consumer     text        NOT NULL,
    key_lock     bigint      NOT NULL,
    tenant_id    text        NOT NULL,
    ordering_key text,                      -- NULL: one message without order
    state        text        NOT NULL CHECK (state IN ('WAITING', 'FAILED', 'DEAD')), -- of its first message
    due_at       timestamptz NOT NULL,      -- when that may run; while it has an owner: when another may take it over
    owner        uuid,                      -- the process that runs it, and did when it died if due_at is over
    since        timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (consumer, key_lock),
    CHECK (state <> 'DEAD' OR owner IS NULL)
) WITH (fillfactor = 70);
CREATE INDEX inbox_key_due ON inbox_key (consumer, due_at) WHERE state <> 'DEAD';

-- Tries of messages that are not parked, as far as somebody has to know them: of those that failed, and of those that may have
-- been running when a process died. A row that was forgotten is removed after the retention.
CREATE TABLE inbox_attempt (
    message_key   uuid        NOT NULL,
    consumer      text        NOT NULL,
    tenant_id     text        NOT NULL,
    source        text        NOT NULL,
    attempts      integer     NOT NULL CHECK (attempts > 0),
    error_message text        NOT NULL DEFAULT '',
    tried_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (message_key, consumer, tenant_id, source)
);
CREATE INDEX inbox_attempt_age ON inbox_attempt (tried_at);

-- Where a dead letter stood, so that it can go back there (NULL in those that were made before), and whether the later messages
-- of its key wait for it.
ALTER TABLE inbox_dead ADD COLUMN key_lock bigint, ADD COLUMN seq bigint, ADD COLUMN holds boolean NOT NULL DEFAULT false;

-- Functions, because each statement of one has a snapshot of its own: what is looked for after the lock was waited for must
-- be seen as it is then. The rows of the result are few and say it all, so that it needs no column: they are counted.
SELECT oncebox_create($text$
-- Enters a message. No row: it was entered before. One: it is to be handled. Two: others of its key wait before it.
CREATE FUNCTION inbox_enter(p_message uuid, p_consumer text, p_tenant text, p_source text, p_lock bigint) RETURNS SETOF boolean
LANGUAGE plpgsql ROWS 1 AS $f$
BEGIN
    IF p_lock IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock(hashint8extended(p_lock, '{schema}.inbox'::regclass::oid::bigint));
    END IF;
    INSERT INTO {schema}.inbox (message_key, consumer, tenant_id, source)
    VALUES (p_message, p_consumer, p_tenant, p_source) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    RETURN NEXT true;
    IF p_lock IS NOT NULL AND EXISTS (SELECT FROM {schema}.inbox_key k WHERE k.consumer = p_consumer AND k.key_lock = p_lock) THEN
        RETURN NEXT true;
    END IF;
END $f$;

-- Enters several messages, each of them once in the arrays. It returns which of them, counted from 1, were not entered
-- before, and which of the keys do not flow. Locks and entries are taken in an order that all share.
CREATE FUNCTION inbox_enter_all(p_messages uuid[], p_consumer text, p_tenants text[], p_sources text[], p_locks bigint[])
RETURNS TABLE (nth integer, stopped bigint)
LANGUAGE plpgsql AS $f$
BEGIN
    PERFORM pg_advisory_xact_lock(hashint8extended(l.key_lock, '{schema}.inbox'::regclass::oid::bigint))
    FROM (SELECT DISTINCT u.key_lock FROM unnest(p_locks) u(key_lock) ORDER BY 1) l;
    RETURN QUERY
    WITH entered AS (
        INSERT INTO {schema}.inbox AS i (message_key, consumer, tenant_id, source)
        SELECT u.m, p_consumer, u.t, u.s FROM unnest(p_messages, p_tenants, p_sources) u(m, t, s) ORDER BY u.m, u.t, u.s
        ON CONFLICT DO NOTHING RETURNING i.message_key, i.tenant_id, i.source
    )
    SELECT u.n::integer, NULL::bigint
    FROM entered e
    JOIN unnest(p_messages, p_tenants, p_sources) WITH ORDINALITY u(m, t, s, n)
        ON u.m = e.message_key AND u.t = e.tenant_id AND u.s = e.source;
    RETURN QUERY
    SELECT NULL::integer, k.key_lock FROM {schema}.inbox_key k WHERE k.consumer = p_consumer AND k.key_lock = ANY (p_locks);
END $f$;
$text$);

INSERT INTO oncebox_migrations (name) VALUES ('20261121000010_inbox_parked.up.sql');
