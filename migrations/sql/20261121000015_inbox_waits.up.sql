-- A consumer that comes back: what it handled last is kept until it has been back for a day, in which the broker brings again
-- what it did not know to be acknowledged.
ALTER TABLE inbox_consumer
    ADD COLUMN beat_at timestamptz NOT NULL DEFAULT clock_timestamp(), -- when it was last seen running
    ADD COLUMN back_at timestamptz;                                    -- since when it is back; NULL: it was not away
COMMENT ON COLUMN inbox_consumer.active_at IS 'from when on the retention of its entries counts';

CREATE INDEX inbox_audit_age ON inbox_audit (at);

SELECT oncebox_create($text$
-- Takes the lock of a key, and waits for it no longer than that. One row if it has it.
CREATE FUNCTION inbox_lock_key(p_lock bigint, p_wait interval) RETURNS SETOF boolean
LANGUAGE plpgsql ROWS 1 AS $f$
DECLARE
    before text := current_setting('lock_timeout');
BEGIN
    PERFORM set_config('lock_timeout', greatest(extract(epoch FROM p_wait) * 1000, 1)::integer::text, true);
    PERFORM pg_advisory_xact_lock(hashint8extended(p_lock, '{schema}.inbox'::regclass::oid::bigint));
    PERFORM set_config('lock_timeout', before, true);
    RETURN NEXT true;
EXCEPTION WHEN lock_not_available THEN
    PERFORM set_config('lock_timeout', before, true);
END $f$;
$text$);

INSERT INTO oncebox_migrations (name) VALUES ('20261121000015_inbox_waits.up.sql');
