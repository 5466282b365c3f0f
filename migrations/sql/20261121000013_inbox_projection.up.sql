-- Projections: consumers whose work can be thrown away and done again. Each time is a generation, which the inbox knows as a
-- consumer of its own: to it every message is new, and nothing has to be forgotten first.
CREATE TABLE inbox_projection (
    name        text        PRIMARY KEY,
    generation  bigint      NOT NULL DEFAULT 0 CHECK (generation >= 0),
    consumer    text        NOT NULL GENERATED ALWAYS AS (CASE generation WHEN 0 THEN name ELSE name || '@' || generation::text END) STORED,
    state       text        NOT NULL DEFAULT 'LIVE' CHECK (state IN ('LIVE', 'REBUILDING')),
    checkpoint  text        NOT NULL DEFAULT '', -- how far the source was read, in its own words
    events      bigint      NOT NULL DEFAULT 0,  -- that it has handed over
    owner       uuid,                            -- who rebuilds it, and did when it died if the lease is over
    lease_until timestamptz NOT NULL DEFAULT '-infinity',
    started_at  timestamptz,                     -- of the latest generation
    updated_at  timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

SELECT oncebox_create($text$
-- Whoever handles messages of a generation calls it first. The lock keeps a reset out until the end of the transaction, and the
-- look must be younger than the lock. No row: there is another generation by now. One: it is live. Two: it is being rebuilt.
CREATE FUNCTION inbox_gate(p_name text, p_generation bigint) RETURNS SETOF boolean
LANGUAGE plpgsql ROWS 1 AS $f$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended(p_name, '{schema}.inbox_projection'::regclass::oid::bigint));
    RETURN QUERY SELECT true FROM {schema}.inbox_projection p, generate_series(1, CASE p.state WHEN 'LIVE' THEN 1 ELSE 2 END)
    WHERE p.name = p_name AND p.generation = p_generation;
END $f$;

-- inbox_enter behind the gate. Three rows: a live message that has to wait, because its projection is being rebuilt. Four:
-- there is another generation by now, or it was replayed and nothing is being rebuilt any more.
CREATE FUNCTION inbox_enter_projection(p_name text, p_generation bigint, p_replayed boolean,
    p_message uuid, p_consumer text, p_tenant text, p_source text, p_lock bigint) RETURNS SETOF boolean
LANGUAGE plpgsql ROWS 1 AS $f$
DECLARE
    gate bigint := (SELECT count(*) FROM {schema}.inbox_gate(p_name, p_generation));
BEGIN
    IF gate = 1 + p_replayed::integer THEN
        RETURN QUERY SELECT * FROM {schema}.inbox_enter(p_message, p_consumer, p_tenant, p_source, p_lock);
    ELSE
        RETURN QUERY SELECT true FROM generate_series(1, CASE gate WHEN 2 THEN 3 ELSE 4 END);
    END IF;
END $f$;
$text$);

INSERT INTO oncebox_migrations (name) VALUES ('20261121000013_inbox_projection.up.sql');
