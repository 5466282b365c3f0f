-- When each consumer ran last. What a broker brings again reaches back from that moment, not from now: the entries of a consumer
-- that was away are kept for as much longer.
CREATE TABLE inbox_consumer (
    consumer  text        PRIMARY KEY,
    active_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Drops the child of one day; see outbox_drop_partition.
CREATE FUNCTION inbox_drop_partition(day date, wait interval DEFAULT '50 ms') RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '50 ms' AS $f$
DECLARE
    child text := 'inbox_' || to_char(day, 'YYYYMMDD');
BEGIN
    IF NOT isfinite(day) OR (day + 1)::timestamp AT TIME ZONE 'UTC' > clock_timestamp() - interval '24 hours' THEN
        RAISE EXCEPTION 'inbox_drop_partition: % is within the last 24 hours', day USING ERRCODE = '22023';
    END IF;
    IF NOT EXISTS (SELECT FROM pg_inherits WHERE inhparent = 'inbox'::regclass AND inhrelid = to_regclass(child)) THEN
        RETURN false;
    END IF;
    PERFORM set_config('lock_timeout', (extract(epoch FROM wait) * 1000)::int::text, true);
    LOCK TABLE inbox IN ACCESS EXCLUSIVE MODE;
    IF NOT EXISTS (SELECT FROM pg_inherits WHERE inhparent = 'inbox'::regclass AND inhrelid = to_regclass(child)) THEN
        RETURN false;
    END IF;
    EXECUTE format('DROP TABLE %I', child);
    RETURN true;
END $f$;
REVOKE ALL ON FUNCTION inbox_drop_partition(date, interval) FROM PUBLIC;
DO $$ BEGIN
    EXECUTE format('ALTER FUNCTION inbox_drop_partition(date, interval) SET search_path = %I, pg_temp', current_schema());
END $$;

INSERT INTO oncebox_migrations (name) VALUES ('20261121000014_inbox_consumer.up.sql');
