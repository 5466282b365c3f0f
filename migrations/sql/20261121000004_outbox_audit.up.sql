-- What operators did with dead letters, and what the retention removed. Written in the same transaction as the deed.
CREATE TABLE outbox_audit (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor      text        NOT NULL CHECK (actor <> ''),
    action     text        NOT NULL, -- replay, discard, expire
    event_id   uuid,                 -- NULL: a row of the retention, about as many events as it says
    events     bigint      NOT NULL DEFAULT 1 CHECK (events > 0),
    tenant_id  text        NOT NULL,
    topic      text        NOT NULL,
    event_type text        NOT NULL,
    reason     text        NOT NULL DEFAULT ''
);
CREATE INDEX outbox_audit_event ON outbox_audit (event_id, id) WHERE event_id IS NOT NULL;

-- Lists of dead letters by one property, each in the order of their pages.
CREATE INDEX outbox_dead_tenant ON outbox_dead (tenant_id, died_at, seq);
CREATE INDEX outbox_dead_topic ON outbox_dead (topic, died_at, seq);
CREATE INDEX outbox_dead_type ON outbox_dead (event_type, died_at, seq);

SELECT oncebox_create($text$
-- Drops the child of one day. false: there is none. It refuses to touch the last 24 hours, whatever it is told. See
-- outbox_make_partition for wait and for the owner's rights.
CREATE FUNCTION outbox_drop_partition(day date, wait interval DEFAULT '50 ms') RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '50 ms' AS $f$
DECLARE
    parent CONSTANT regclass := '{schema}.outbox_sent';
    child CONSTANT text := '{schema}.outbox_sent_' || to_char(day, 'YYYYMMDD');
BEGIN
    IF NOT isfinite(day) OR (day + 1)::timestamp AT TIME ZONE 'UTC' > clock_timestamp() - interval '24 hours' THEN
        RAISE EXCEPTION 'outbox_drop_partition: % is within the last 24 hours', day USING ERRCODE = '22023';
    END IF;
    IF NOT EXISTS (SELECT FROM pg_inherits WHERE inhparent = parent AND inhrelid = to_regclass(child)) THEN
        RETURN false;
    END IF;
    PERFORM set_config('lock_timeout', (extract(epoch FROM wait) * 1000)::int::text, true);
    -- DROP takes this lock as well. Taken first, it makes two that want the same child take turns.
    LOCK TABLE {schema}.outbox_sent IN ACCESS EXCLUSIVE MODE;
    IF NOT EXISTS (SELECT FROM pg_inherits WHERE inhparent = parent AND inhrelid = to_regclass(child)) THEN
        RETURN false;
    END IF;
    EXECUTE format('DROP TABLE %s', child);
    RETURN true;
END $f$;
$text$);
REVOKE ALL ON FUNCTION outbox_drop_partition(date, interval) FROM PUBLIC;

INSERT INTO oncebox_migrations (name) VALUES ('20261121000004_outbox_audit.up.sql');
