SELECT oncebox_create($text$
-- Takes the locks of keys, in the order in which they are given. Who waits for one for so many milliseconds gives up with
-- lock_not_available: whoever holds it handles a message, or is a process that hangs.
CREATE FUNCTION inbox_lock_keys(p_locks bigint[], p_wait integer) RETURNS void
LANGUAGE plpgsql AS $f$
DECLARE
    before text := current_setting('lock_timeout');
BEGIN
    PERFORM set_config('lock_timeout', p_wait::text, true);
    PERFORM pg_advisory_xact_lock(hashint8extended(l, '{schema}.inbox'::regclass::oid::bigint)) FROM unnest(p_locks) l;
    PERFORM set_config('lock_timeout', before, true);
END $f$;

-- inbox_enter that does not wait for ever: neither for the lock nor, if there is none, for a copy of the message, for which the index
-- waits. Nobody is overtaken: a lock for which somebody waits cannot be had without waiting.
CREATE FUNCTION inbox_enter(p_message uuid, p_consumer text, p_tenant text, p_source text, p_lock bigint, p_wait integer)
RETURNS SETOF boolean
LANGUAGE plpgsql ROWS 1 AS $f$
DECLARE
    before text;
    got boolean;
BEGIN
    IF p_lock IS NULL THEN
        before := current_setting('lock_timeout');
        PERFORM set_config('lock_timeout', p_wait::text, true);
    ELSIF NOT pg_try_advisory_xact_lock(hashint8extended(p_lock, '{schema}.inbox'::regclass::oid::bigint)) THEN
        PERFORM {schema}.inbox_lock_keys(ARRAY[p_lock], p_wait);
    END IF;
    INSERT INTO {schema}.inbox (message_key, consumer, tenant_id, source)
    VALUES (p_message, p_consumer, p_tenant, p_source) ON CONFLICT DO NOTHING;
    got := FOUND;
    IF p_lock IS NULL THEN
        PERFORM set_config('lock_timeout', before, true);
    END IF;
    IF NOT got THEN
        RETURN;
    END IF;
    RETURN NEXT true;
    IF p_lock IS NOT NULL AND EXISTS (SELECT FROM {schema}.inbox_key k WHERE k.consumer = p_consumer AND k.key_lock = p_lock) THEN
        RETURN NEXT true;
    END IF;
END $f$;

-- The same behind the gate of a projection.
CREATE FUNCTION inbox_enter_projection(p_name text, p_generation bigint, p_replayed boolean,
    p_message uuid, p_consumer text, p_tenant text, p_source text, p_lock bigint, p_wait integer) RETURNS SETOF boolean
LANGUAGE plpgsql ROWS 1 AS $f$
DECLARE
    gate bigint := (SELECT count(*) FROM {schema}.inbox_gate(p_name, p_generation));
BEGIN
    IF gate = 1 + p_replayed::integer THEN
        RETURN QUERY SELECT * FROM {schema}.inbox_enter(p_message, p_consumer, p_tenant, p_source, p_lock, p_wait);
    ELSE
        RETURN QUERY SELECT true FROM generate_series(1, CASE gate WHEN 2 THEN 3 ELSE 4 END);
    END IF;
END $f$;

-- Enters several messages, each of them once. Messages and locks come in an order that all share; tenants and sources are one
-- value each if it is that of all. A row is a message that was not entered before (with tenant and source unless they are that of
-- all), or a key that does not flow, or, the last one, the id of the transaction.
CREATE FUNCTION inbox_enter_batch(p_messages uuid[], p_consumer text, p_tenants text[], p_sources text[], p_locks bigint[], p_wait integer)
RETURNS TABLE (entered uuid, tenant text, origin text, stopped bigint, xid text)
LANGUAGE plpgsql AS $f$
DECLARE
    mixed boolean := cardinality(p_tenants) > 1;
    before text := current_setting('lock_timeout');
BEGIN
    PERFORM {schema}.inbox_lock_keys(p_locks, p_wait);
    PERFORM set_config('lock_timeout', p_wait::text, true); -- for a copy of a message without order
    RETURN QUERY
    INSERT INTO {schema}.inbox AS i (message_key, consumer, tenant_id, source)
    SELECT u.m, p_consumer, coalesce(u.t, p_tenants[1]), coalesce(u.s, p_sources[1])
    FROM unnest(p_messages, p_tenants, p_sources) u(m, t, s)
    ON CONFLICT DO NOTHING
    RETURNING i.message_key, CASE WHEN mixed THEN i.tenant_id END, CASE WHEN mixed THEN i.source END, NULL::bigint, NULL::text;
    PERFORM set_config('lock_timeout', before, true);
    IF EXISTS (SELECT FROM {schema}.inbox_key k WHERE k.consumer = p_consumer) THEN
        RETURN QUERY
        SELECT NULL::uuid, NULL::text, NULL::text, k.key_lock, NULL::text
        FROM {schema}.inbox_key k WHERE k.consumer = p_consumer AND k.key_lock = ANY (p_locks);
    END IF;
    RETURN QUERY SELECT NULL::uuid, NULL::text, NULL::text, NULL::bigint, pg_current_xact_id()::text;
END $f$;
$text$);

INSERT INTO oncebox_migrations (name) VALUES ('20261121000018_inbox_enter.up.sql');
