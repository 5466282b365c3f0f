-- The inbox: which consumer has handled which message. Partitioned by the day in the UUIDv7 of the message, so that a
-- redelivered message meets its own row wherever it comes from, and old days are dropped, never deleted.
CREATE TABLE inbox (
    message_key  uuid        NOT NULL, -- the id itself if it is a UUIDv7, else ff... as UUIDv8, a hash of source and id
    consumer     text        NOT NULL,
    tenant_id    text        NOT NULL,
    source       text        NOT NULL,
    processed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (message_key, consumer, tenant_id, source)
) PARTITION BY RANGE (message_key);

-- Those whose day has no child.
CREATE TABLE inbox_default PARTITION OF inbox DEFAULT;
CREATE INDEX inbox_default_age ON inbox_default (processed_at);

-- Ids without a day: their hashes begin with ff. They may be many, and would make each ATTACH scan the DEFAULT child
-- for as long under a lock that handlers wait for.
CREATE TABLE inbox_foreign PARTITION OF inbox FOR VALUES FROM ('ff000000-0000-0000-0000-000000000000') TO (MAXVALUE);
CREATE INDEX inbox_foreign_age ON inbox_foreign (processed_at);

-- Messages that a consumer gave up, with all that is needed to handle them after all.
CREATE TABLE inbox_dead (
    message_key       uuid        NOT NULL,
    consumer          text        NOT NULL,
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
    attempts          integer     NOT NULL DEFAULT 1 CHECK (attempts > 0),
    error_message     text        NOT NULL,
    died_at           timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (message_key, consumer, tenant_id, source)
);
CREATE INDEX inbox_dead_order ON inbox_dead (consumer, died_at, message_key);

-- The smallest UUIDv7 of a day.
CREATE FUNCTION inbox_day_bound(day date) RETURNS uuid LANGUAGE sql IMMUTABLE AS $f$
    SELECT (lpad(to_hex((extract(epoch FROM day::timestamp) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
$f$;

-- Makes the child of one day. See outbox_make_partition for the result, the locks and the rows that move.
CREATE FUNCTION inbox_make_partition(day date, wait interval DEFAULT '50 ms') RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '50 ms' AS $f$
DECLARE
    child text := 'inbox_' || to_char(day, 'YYYYMMDD');
    lo uuid := inbox_day_bound(day);
    hi uuid := inbox_day_bound(day + 1);
    few CONSTANT integer := 10000;
BEGIN
    IF EXISTS (SELECT FROM pg_inherits WHERE inhparent = 'inbox'::regclass AND inhrelid = to_regclass(child)) THEN
        RETURN false;
    END IF;
    PERFORM set_config('lock_timeout', (extract(epoch FROM wait) * 1000)::int::text, true);
    LOCK TABLE inbox IN SHARE UPDATE EXCLUSIVE MODE;
    IF EXISTS (SELECT FROM pg_inherits WHERE inhparent = 'inbox'::regclass AND inhrelid = to_regclass(child)) THEN
        RETURN false;
    END IF;
    IF (SELECT count(*) FROM (SELECT FROM inbox_default WHERE message_key >= lo AND message_key < hi LIMIT few + 1) x) > few THEN
        RETURN false;
    END IF;
    LOCK TABLE inbox_default IN ACCESS EXCLUSIVE MODE;
    EXECUTE format('CREATE TABLE IF NOT EXISTS %I (LIKE inbox INCLUDING ALL)
        WITH (autovacuum_vacuum_insert_threshold = -1)', child);
    EXECUTE format('WITH moved AS (DELETE FROM inbox_default WHERE message_key >= %L AND message_key < %L RETURNING *)
        INSERT INTO %I SELECT * FROM moved', lo, hi, child);
    EXECUTE format('ALTER TABLE inbox ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', child, lo, hi);
    RETURN true;
END $f$;

-- Drops the children of all days that ended before "before", and never the last 24 hours.
CREATE FUNCTION inbox_drop_partitions(before timestamptz, wait interval DEFAULT '50 ms') RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '50 ms' AS $f$
DECLARE
    child regclass;
    dropped integer := 0;
BEGIN
    IF before > clock_timestamp() - interval '24 hours' THEN
        RAISE EXCEPTION 'inbox_drop_partitions: % is within the last 24 hours', before USING ERRCODE = '22023';
    END IF;
    PERFORM set_config('lock_timeout', (extract(epoch FROM wait) * 1000)::int::text, true);
    FOR child IN
        SELECT c.oid FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'inbox'::regclass AND c.relname ~ '^inbox_[0-9]{8}$'
          AND (to_date(right(c.relname, 8), 'YYYYMMDD') + 1)::timestamp AT TIME ZONE 'UTC' <= before
        ORDER BY c.relname
    LOOP
        EXECUTE format('DROP TABLE %s', child);
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END $f$;

-- See the functions of the outbox.
REVOKE ALL ON FUNCTION inbox_make_partition(date, interval), inbox_drop_partitions(timestamptz, interval) FROM PUBLIC;
DO $$ BEGIN
    EXECUTE format('ALTER FUNCTION inbox_make_partition(date, interval) SET search_path = %I, pg_temp', current_schema());
    EXECUTE format('ALTER FUNCTION inbox_drop_partitions(timestamptz, interval) SET search_path = %I, pg_temp', current_schema());
END $$;

INSERT INTO oncebox_migrations (name) VALUES ('20261121000002_inbox.up.sql');
