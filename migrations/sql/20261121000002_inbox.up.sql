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

SELECT oncebox_create($text$
-- Makes the child of one day. See outbox_make_partition for the result, the locks, the rows that move, and the owner's rights.
CREATE FUNCTION inbox_make_partition(day date, wait interval DEFAULT '50 ms') RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '50 ms' AS $f$
DECLARE
    parent CONSTANT regclass := '{schema}.inbox';
    rest CONSTANT regclass := '{schema}.inbox_default';
    child CONSTANT text := '{schema}.inbox_' || to_char(day, 'YYYYMMDD');
    lo CONSTANT uuid := {schema}.inbox_day_bound(day);
    hi CONSTANT uuid := {schema}.inbox_day_bound(day + 1);
    few CONSTANT integer := 10000;
BEGIN
    IF EXISTS (SELECT FROM pg_inherits WHERE inhparent = parent AND inhrelid = to_regclass(child)) THEN
        RETURN false;
    END IF;
    PERFORM set_config('lock_timeout', (extract(epoch FROM wait) * 1000)::int::text, true);
    LOCK TABLE {schema}.inbox IN SHARE UPDATE EXCLUSIVE MODE;
    IF EXISTS (SELECT FROM pg_inherits WHERE inhparent = parent AND inhrelid = to_regclass(child)) THEN
        RETURN false;
    END IF;
    IF (SELECT count(*) FROM (SELECT FROM {schema}.inbox_default WHERE message_key >= lo AND message_key < hi LIMIT few + 1) x) > few THEN
        RETURN false;
    END IF;
    LOCK TABLE {schema}.inbox_default IN ACCESS EXCLUSIVE MODE;
    EXECUTE format('CREATE TABLE IF NOT EXISTS %s (LIKE %s INCLUDING ALL)
        WITH (autovacuum_vacuum_insert_threshold = -1)', child, parent);
    IF (SELECT count(DISTINCT relowner) FROM pg_class WHERE oid IN (parent, to_regclass(child))) > 1 THEN
        RAISE EXCEPTION 'inbox_make_partition: % belongs to another role than inbox', child
            USING ERRCODE = '42501', HINT = 'Rename or drop that table.';
    END IF;
    EXECUTE format('WITH moved AS (DELETE FROM %s WHERE message_key >= %L AND message_key < %L RETURNING *)
        INSERT INTO %s SELECT * FROM moved', rest, lo, hi, child);
    EXECUTE format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%L) TO (%L)', parent, child, lo, hi);
    RETURN true;
END $f$;
$text$);
REVOKE ALL ON FUNCTION inbox_make_partition(date, interval) FROM PUBLIC;

INSERT INTO oncebox_migrations (name) VALUES ('20261121000002_inbox.up.sql');
