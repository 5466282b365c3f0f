-- The outbox. Unsent rows only live in "outbox": the happy path is one INSERT and one DELETE, never an UPDATE.
-- Every name is unqualified on purpose: the schema is the first one of the search_path.

-- Which files were applied. Each one enters itself at its end, whatever tool applies it.
CREATE TABLE oncebox_migrations (name text PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now());

-- Makes functions that name the schema: {schema} in the template becomes the first one of the search_path, as an identifier. At
-- the beginning of a literal the quotes that the name may have are doubled.
CREATE FUNCTION oncebox_create(template text) RETURNS void LANGUAGE plpgsql AS $f$
DECLARE
    here CONSTANT text := quote_ident(current_schema()::text);
BEGIN
    EXECUTE replace(replace(template, '''{schema}', '''' || replace(here, '''', '''''')), '{schema}', here);
END $f$;

-- One row: what every writer and reader must agree on. Lanes and hash never change under existing rows.
CREATE TABLE outbox_layout (
    only_one      boolean  PRIMARY KEY DEFAULT true CHECK (only_one),
    lanes         smallint NOT NULL CHECK (lanes > 0 AND lanes & (lanes - 1) = 0),
    hash_version  smallint NOT NULL CHECK (hash_version > 0),
    -- First half of the keys of the advisory locks that put the commits of one ordering key in order.
    lock_space    integer  NOT NULL,
    -- A stored copy of the database that wakes up elsewhere carries the same id.
    deployment_id uuid     NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO outbox_layout (lanes, hash_version, lock_space)
VALUES (64, 1, hashtext('oncebox.outbox.' || current_schema()::text));

-- CACHE 1: with more, sessions would hand out numbers from blocks of their own and order would be lost.
CREATE SEQUENCE outbox_seq AS bigint CACHE 1;

CREATE TABLE outbox (
    -- The transaction's id is assigned before the number is drawn: whoever sees all transactions up to an id finished
    -- has therefore seen all numbers drawn by them. The low-water mark of the relay rests on this.
    seq               bigint      NOT NULL DEFAULT CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval('outbox_seq') END,
    id                uuid        NOT NULL,
    occurred_at       timestamptz NOT NULL,
    created_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    not_before        timestamptz,
    expires_at        timestamptz,
    aggregate_version bigint      NOT NULL DEFAULT 0 CHECK (aggregate_version >= 0),
    schema_version    integer     NOT NULL DEFAULT 1 CHECK (schema_version > 0),
    lane              smallint    NOT NULL CHECK (lane >= 0),
    max_attempts      smallint             CHECK (max_attempts > 0),
    retry_count       smallint    NOT NULL DEFAULT 0 CHECK (retry_count >= 0), -- refusals by the broker
    crashes           smallint    NOT NULL DEFAULT 0 CHECK (crashes >= 0),     -- projectors that died over it
    tenant_id         text        NOT NULL,
    topic             text        NOT NULL,
    ordering_key      text,       -- NULL: unordered
    aggregate_type    text        NOT NULL DEFAULT '',
    aggregate_id      text        NOT NULL DEFAULT '',
    event_type        text        NOT NULL,
    source            text        NOT NULL,
    routing_key       text,
    schema_id         text,
    content_type      text        NOT NULL DEFAULT 'application/json',
    dedup_key         text,
    event_metadata    json        NOT NULL DEFAULT '{}',
    payload           bytea       NOT NULL,
    PRIMARY KEY (lane, seq) -- the only index: 64 right edges, one per lane, serve insert, fetch and delete
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);

-- Who publishes what. Lane numbers are unique over all groups: group g owns the lanes g*64 .. g*64+63.
CREATE TABLE outbox_lane (
    lane        smallint    PRIMARY KEY,
    grp         smallint    NOT NULL DEFAULT 0,
    owner       text,
    epoch       bigint      NOT NULL DEFAULT 0,           -- counts owners; part of every fence
    lease_until timestamptz NOT NULL DEFAULT '-infinity',
    claimed_seq bigint      NOT NULL DEFAULT 0,           -- rows up to it may be on their way to the broker
    change      bigint      NOT NULL DEFAULT 0,           -- counts what operators did; the owner then reloads its blocks
    empty_to    bigint      NOT NULL DEFAULT 0            -- up to it nothing is unsent, nor ever will be: the next owner begins there
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);
INSERT INTO outbox_lane (lane) SELECT generate_series(0, 63);

-- What becomes of published rows: one row, entered by the first process with a setting. All processes go by it.
CREATE TABLE outbox_retention (
    only_one boolean  PRIMARY KEY DEFAULT true CHECK (only_one),
    is_set   boolean  NOT NULL, -- false: no process has set kept, so the default counts
    kept     interval,          -- 0: they are deleted on publish; NULL: they are kept for ever
    archived boolean  NOT NULL  -- processes without outbox.Config.BeforeDrop drop none
);

-- One row, whose id changes when the server crashes and when a standby takes over: both empty all unlogged tables. What the
-- server has committed without waiting for the disk may be forgotten then, and a projector that lives on has to look again.
CREATE UNLOGGED TABLE outbox_incarnation (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    id       uuid    NOT NULL DEFAULT gen_random_uuid()
);

-- Projectors that are alive, so that lanes can be shared out evenly.
CREATE TABLE outbox_projector (
    owner      text        PRIMARY KEY,
    grp        smallint    NOT NULL DEFAULT 0,
    deployment text        NOT NULL DEFAULT '', -- as in outbox.Config.Deployment; '': none
    seen_until timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Rows that wait: refused heads, what follows them under their key, delayed and replayed rows.
-- A follower has retry_after = infinity: it becomes due when the row before it is settled.
CREATE TABLE outbox_held (
    LIKE outbox,
    retry_after   timestamptz NOT NULL,
    error_message text,
    PRIMARY KEY (lane, seq)
);
CREATE INDEX outbox_held_due ON outbox_held (lane, retry_after);
CREATE INDEX outbox_held_key ON outbox_held (lane, ordering_key, seq);

-- The only source of the set of blocked keys.
--   failed:   the head waits for its next attempt
--   dead:     the head is a dead letter; the key waits for an operator
--   draining: an operator decided; what is held leaves in order, then the block is lifted
CREATE TABLE outbox_block (
    lane         smallint NOT NULL,
    ordering_key text     NOT NULL,
    head_seq     bigint   NOT NULL,
    state        text     NOT NULL CHECK (state IN ('failed', 'dead', 'draining')),
    PRIMARY KEY (lane, ordering_key)
);

-- Producers may give one id to several events, so the id is no key. The order of the primary key is that in which many are
-- replayed: of their keys, and of the locks of their lanes.
CREATE TABLE outbox_dead (
    LIKE outbox,
    died_at       timestamptz NOT NULL DEFAULT now(),
    error_message text,
    PRIMARY KEY (lane, seq)
);
CREATE INDEX outbox_dead_id ON outbox_dead (id);
CREATE INDEX outbox_dead_order ON outbox_dead (died_at, seq);

-- What was published, in daily partitions (UTC) that are dropped after the retention. The DEFAULT child is there so
-- that no settle can fail for want of a partition.
CREATE TABLE outbox_sent (
    LIKE outbox,
    sent_at timestamptz NOT NULL
) PARTITION BY RANGE (sent_at);
CREATE TABLE outbox_sent_default PARTITION OF outbox_sent DEFAULT;

-- Functions that act with the rights of the tables' owner. Three things keep a caller from acting as the owner himself:
-- nobody gets them for free; names are looked up in pg_catalog only, because a function or an operator that somebody planted
-- in another schema wins wherever its arguments fit better, and our own names are qualified; and a table that somebody else
-- made in advance is refused, because it may have triggers. pg_temp is named because unnamed it would come first.
SELECT oncebox_create($text$
-- Makes the child of one day. false: it was there already, or so many rows of the day lie in the DEFAULT child that they
-- stay there until the retention removes them. wait is the lock_timeout, and the longest stall that waiting here can
-- cause: who waits for a lock on a table makes everybody else wait behind. 55P03: try again.
CREATE FUNCTION outbox_make_partition(day date, wait interval DEFAULT '50 ms') RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '50 ms' AS $f$
DECLARE
    parent CONSTANT regclass := '{schema}.outbox_sent';
    rest CONSTANT regclass := '{schema}.outbox_sent_default';
    child CONSTANT text := '{schema}.outbox_sent_' || to_char(day, 'YYYYMMDD');
    lo CONSTANT timestamptz := day::timestamp AT TIME ZONE 'UTC';
    hi CONSTANT timestamptz := (day + 1)::timestamp AT TIME ZONE 'UTC';
    few CONSTANT integer := 10000;
BEGIN
    IF EXISTS (SELECT FROM pg_inherits WHERE inhparent = parent AND inhrelid = to_regclass(child)) THEN
        RETURN false;
    END IF;
    PERFORM set_config('lock_timeout', (extract(epoch FROM wait) * 1000)::int::text, true);
    -- ATTACH takes this lock as well. Taken first, it makes two that want the same child take turns.
    LOCK TABLE {schema}.outbox_sent IN SHARE UPDATE EXCLUSIVE MODE;
    IF EXISTS (SELECT FROM pg_inherits WHERE inhparent = parent AND inhrelid = to_regclass(child)) THEN
        RETURN false;
    END IF;
    IF (SELECT count(*) FROM (SELECT FROM {schema}.outbox_sent_default WHERE sent_at >= lo AND sent_at < hi LIMIT few + 1) x) > few THEN
        RETURN false;
    END IF;
    -- ATTACH refuses a child whose rows lie in the DEFAULT one, so the few that were faster than this function move over.
    LOCK TABLE {schema}.outbox_sent_default IN ACCESS EXCLUSIVE MODE;
    EXECUTE format('CREATE TABLE IF NOT EXISTS %s (LIKE %s INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)
        WITH (autovacuum_vacuum_insert_threshold = -1)', child, parent);
    IF (SELECT count(DISTINCT relowner) FROM pg_class WHERE oid IN (parent, to_regclass(child))) > 1 THEN
        RAISE EXCEPTION 'outbox_make_partition: % belongs to another role than outbox_sent', child
            USING ERRCODE = '42501', HINT = 'Rename or drop that table.';
    END IF;
    EXECUTE format('WITH moved AS (DELETE FROM %s WHERE sent_at >= %L AND sent_at < %L RETURNING *)
        INSERT INTO %s SELECT * FROM moved', rest, lo, hi, child);
    EXECUTE format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%L) TO (%L)', parent, child, lo, hi);
    RETURN true;
END $f$;
$text$);
REVOKE ALL ON FUNCTION outbox_make_partition(date, interval) FROM PUBLIC;

-- All of it as one table, for people and for tools.
-- PUBLISHING is an approximation: the row is not beyond what the owner of a live lease has fetched last.
CREATE VIEW outbox_messages AS
SELECT o.id, o.tenant_id, o.aggregate_id, o.aggregate_type, o.aggregate_version, o.event_type, o.topic, o.occurred_at,
       o.payload, o.event_metadata, o.routing_key, o.schema_id, o.schema_version,
       CASE WHEN o.seq <= l.claimed_seq AND l.owner IS NOT NULL AND l.lease_until > clock_timestamp()
            THEN 'PUBLISHING' ELSE 'NEW' END AS status,
       o.retry_count::integer AS retry_count, NULL::timestamptz AS retry_after, NULL::text AS error_message,
       o.created_at, NULL::timestamptz AS sent_at, o.seq AS sequence
FROM outbox o LEFT JOIN outbox_lane l ON l.lane = o.lane
UNION ALL
SELECT h.id, h.tenant_id, h.aggregate_id, h.aggregate_type, h.aggregate_version, h.event_type, h.topic, h.occurred_at,
       h.payload, h.event_metadata, h.routing_key, h.schema_id, h.schema_version,
       CASE WHEN h.retry_count > 0 THEN 'FAILED' ELSE 'NEW' END,
       h.retry_count, NULLIF(h.retry_after, 'infinity'), h.error_message, h.created_at, NULL, h.seq
FROM outbox_held h
UNION ALL
SELECT d.id, d.tenant_id, d.aggregate_id, d.aggregate_type, d.aggregate_version, d.event_type, d.topic, d.occurred_at,
       d.payload, d.event_metadata, d.routing_key, d.schema_id, d.schema_version,
       'DEAD', d.retry_count, NULL, d.error_message, d.created_at, NULL, d.seq
FROM outbox_dead d
UNION ALL
SELECT s.id, s.tenant_id, s.aggregate_id, s.aggregate_type, s.aggregate_version, s.event_type, s.topic, s.occurred_at,
       s.payload, s.event_metadata, s.routing_key, s.schema_id, s.schema_version,
       'SENT', s.retry_count, NULL, NULL, s.created_at, s.sent_at, s.seq
FROM outbox_sent s;

INSERT INTO oncebox_migrations (name) VALUES ('20261121000001_outbox.up.sql');
