-- Handlers that call outside run without a transaction. What a lock does for others, a lease does for them: one process runs
-- one message of a key, until it frees the lease or has been silent for as long as the lease lasts.
CREATE TABLE inbox_lease (
    consumer    text        NOT NULL,
    key_lock    bigint      NOT NULL, -- as in inbox_parked
    message_key uuid        NOT NULL, -- the message that runs
    tenant_id   text        NOT NULL,
    source      text        NOT NULL,
    owner       uuid        NOT NULL, -- another one for each try: what an earlier one writes late is refused by it
    lease_until timestamptz NOT NULL,
    PRIMARY KEY (consumer, key_lock)
) WITH (fillfactor = 70);

-- The steps of a message that are done, with their results. They go with what settles the message.
CREATE TABLE inbox_step (
    message_key uuid        NOT NULL,
    consumer    text        NOT NULL,
    tenant_id   text        NOT NULL,
    source      text        NOT NULL,
    name        text        NOT NULL,
    result      json        NOT NULL,
    done_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (message_key, consumer, tenant_id, source, name)
);
CREATE INDEX inbox_step_age ON inbox_step (done_at);

SELECT oncebox_create($text$
-- Takes the lease of a key for one message, and counts the try. p_seq is the place of a parked message, NULL for one that has
-- just come; p_more is 0 if the try was counted before. The outcomes: taken; held, by another for this long; behind others of
-- its key; gone: it was settled or parked, or is not parked any more.
--
-- The lease comes before the looks: whoever settles a message frees its lease in the same commit, so that what is seen here
-- after the lease was had is what became of the message. The key's lock comes before the lease, as it does for those who park.
CREATE FUNCTION inbox_take_lease(p_message uuid, p_consumer text, p_tenant text, p_source text, p_lock bigint, p_owner uuid,
    p_ttl interval, p_seq bigint, p_more integer, OUT outcome text, OUT attempts integer, OUT rest interval)
LANGUAGE plpgsql AS $f$
DECLARE
    got boolean;
BEGIN
    attempts := 0;
    rest := '0';
    PERFORM pg_advisory_xact_lock(hashint8extended(p_lock, '{schema}.inbox'::regclass::oid::bigint));
    INSERT INTO {schema}.inbox_lease AS l (consumer, key_lock, message_key, tenant_id, source, owner, lease_until)
    VALUES (p_consumer, p_lock, p_message, p_tenant, p_source, p_owner, clock_timestamp() + p_ttl)
    ON CONFLICT (consumer, key_lock) DO UPDATE
    SET message_key = excluded.message_key, tenant_id = excluded.tenant_id, source = excluded.source, owner = excluded.owner,
        lease_until = excluded.lease_until
    WHERE l.lease_until <= clock_timestamp();
    got := FOUND;
    IF p_seq IS NULL AND EXISTS (SELECT FROM {schema}.inbox i
        WHERE i.message_key = p_message AND i.consumer = p_consumer AND i.tenant_id = p_tenant AND i.source = p_source) THEN
        outcome := 'gone';
    ELSIF p_seq IS NULL AND EXISTS (SELECT FROM {schema}.inbox_key k WHERE k.consumer = p_consumer AND k.key_lock = p_lock) THEN
        outcome := 'behind';
    ELSIF NOT got THEN
        outcome := 'held';
        SELECT l.lease_until - clock_timestamp() INTO rest
        FROM {schema}.inbox_lease l WHERE l.consumer = p_consumer AND l.key_lock = p_lock;
        rest := greatest(rest, '0'); -- also if it was freed meanwhile
    ELSIF p_seq IS NULL THEN
        outcome := 'taken';
        INSERT INTO {schema}.inbox_attempt AS a (message_key, consumer, tenant_id, source, attempts)
        VALUES (p_message, p_consumer, p_tenant, p_source, p_more)
        ON CONFLICT (message_key, consumer, tenant_id, source) DO UPDATE SET attempts = a.attempts + p_more, tried_at = clock_timestamp()
        RETURNING a.attempts INTO attempts;
    ELSE
        UPDATE {schema}.inbox_parked p SET attempts = p.attempts + p_more
        WHERE p.consumer = p_consumer AND p.key_lock = p_lock AND p.seq = p_seq RETURNING p.attempts INTO attempts;
        outcome := CASE WHEN FOUND THEN 'taken' ELSE 'gone' END;
        attempts := coalesce(attempts, 0);
    END IF;
    IF got AND outcome <> 'taken' THEN
        DELETE FROM {schema}.inbox_lease l WHERE l.consumer = p_consumer AND l.key_lock = p_lock AND l.owner = p_owner;
    END IF;
END $f$;
$text$);

INSERT INTO oncebox_migrations (name) VALUES ('20261121000012_inbox_lease.up.sql');
