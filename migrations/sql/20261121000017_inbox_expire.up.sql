-- Every handler that runs holds a lock of inbox, which a child can only be dropped without. So an expired child is emptied first,
-- for which only those who handle messages of its day are waited for, and dropped whenever there is a gap.

SELECT oncebox_create($text$
-- Empties the child of one day, unless a message of it was handled within the retention: a consumer that was days behind needs
-- its entries for as long as any other, counted from when it ran last. True: it is empty. See outbox_drop_partition for the rest.
-- It looks twice: without a lock first, because most children that are kept are kept for long, and then with one that keeps
-- entries out and lets readers in.
CREATE FUNCTION inbox_empty_partition(day date, retention interval, wait interval DEFAULT '50 ms') RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '50 ms' AS $f$
DECLARE
    parent CONSTANT regclass := '{schema}.inbox';
    consumers CONSTANT regclass := '{schema}.inbox_consumer';
    child CONSTANT text := '{schema}.inbox_' || to_char(day, 'YYYYMMDD');
    needed boolean;
BEGIN
    IF NOT isfinite(day) OR (day + 1)::timestamp AT TIME ZONE 'UTC' > clock_timestamp() - interval '24 hours' THEN
        RAISE EXCEPTION 'inbox_empty_partition: % is within the last 24 hours', day USING ERRCODE = '22023';
    END IF;
    IF NOT EXISTS (SELECT FROM pg_inherits WHERE inhparent = parent AND inhrelid = to_regclass(child)) THEN
        RETURN false;
    END IF;
    PERFORM set_config('lock_timeout', (extract(epoch FROM wait) * 1000)::int::text, true);
    FOR look IN 1..2 LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM %s e LEFT JOIN %s c USING (consumer)
            WHERE e.processed_at > coalesce(c.active_at, (SELECT clock_timestamp())) - $1)', child, consumers) INTO needed USING retention;
        IF needed THEN
            RETURN false;
        END IF;
        IF look = 1 THEN
            EXECUTE format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', child);
        END IF;
    END LOOP;
    EXECUTE format('SELECT EXISTS (SELECT FROM %s)', child) INTO needed;
    IF needed THEN
        EXECUTE format('TRUNCATE %s', child);
    END IF;
    RETURN true;
END $f$;

-- Drops the child of one day if it is empty. See outbox_drop_partition.
CREATE FUNCTION inbox_drop_partition(day date, wait interval DEFAULT '50 ms') RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '50 ms' AS $f$
DECLARE
    parent CONSTANT regclass := '{schema}.inbox';
    child CONSTANT text := '{schema}.inbox_' || to_char(day, 'YYYYMMDD');
    used boolean;
BEGIN
    IF NOT isfinite(day) OR (day + 1)::timestamp AT TIME ZONE 'UTC' > clock_timestamp() - interval '24 hours' THEN
        RAISE EXCEPTION 'inbox_drop_partition: % is within the last 24 hours', day USING ERRCODE = '22023';
    END IF;
    IF NOT EXISTS (SELECT FROM pg_inherits WHERE inhparent = parent AND inhrelid = to_regclass(child)) THEN
        RETURN false;
    END IF;
    PERFORM set_config('lock_timeout', (extract(epoch FROM wait) * 1000)::int::text, true);
    LOCK TABLE ONLY {schema}.inbox IN ACCESS EXCLUSIVE MODE;
    IF NOT EXISTS (SELECT FROM pg_inherits WHERE inhparent = parent AND inhrelid = to_regclass(child)) THEN
        RETURN false;
    END IF;
    EXECUTE format('SELECT EXISTS (SELECT FROM %s)', child) INTO used;
    IF used THEN
        RETURN false;
    END IF;
    EXECUTE format('DROP TABLE %s', child);
    RETURN true;
END $f$;
$text$);
REVOKE ALL ON FUNCTION inbox_empty_partition(date, interval, interval), inbox_drop_partition(date, interval) FROM PUBLIC;

INSERT INTO oncebox_migrations (name) VALUES ('20261121000017_inbox_expire.up.sql');
