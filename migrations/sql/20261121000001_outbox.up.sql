-- The outbox: events from the commit that recorded them to the day on which they are forgotten.
-- Needs 20261121000000_oncebox.up.sql and no other file.
--
-- outbox is a log: an event is one INSERT, and its row stays where it is. Which rows of a lane are out is said by the latest entry of
-- the lane in outbox_progress. Rows that wait move to outbox_held, rows that were given up to outbox_dead. What leaves out of its turn moves
-- to outbox_sent. With retention 0 published rows are deleted.

-- What every writer and reader must agree on. Lanes and hash never change under existing rows.
ALTER TABLE oncebox_settings
    ADD lanes        smallint NOT NULL DEFAULT 64 CHECK (lanes > 0 AND lanes & (lanes - 1) = 0),
    ADD hash_version smallint NOT NULL DEFAULT 1 CHECK (hash_version > 0),
    -- First half of the keys of the advisory locks that put the commits of one ordering key in order.
    ADD lock_space   integer  NOT NULL DEFAULT hashtext('oncebox.outbox.' || current_schema()::text),
    -- Whose database this is: outbox.Config.Deployment. A copy of the database that runs elsewhere carries the name along, and
    -- projectors of another name publish nothing from it. NULL: no projector has set a name.
    ADD deployment   text     CHECK (deployment <> ''),
    -- The server and the sequence that all numbers were found to be of. Another one, or NULL: a relay looks whether numbers came again.
    ADD numbers_of   text,
    -- What becomes of published rows, as entered by the first process with a setting.
    ADD kept_set     boolean  NOT NULL DEFAULT false, -- false: no process has set kept, so the default counts
    ADD kept         interval,                        -- 0: they are deleted on publish; NULL: they are kept for ever
    ADD archived     boolean  NOT NULL DEFAULT false; -- processes without outbox.Config.BeforeDrop drop none

-- CACHE 1: with more, sessions would hand out numbers from blocks of their own and order would be lost.
CREATE SEQUENCE outbox_seq AS bigint CACHE 1;

-- Events, in daily partitions (UTC) that are dropped after the retention, once nothing in them is unsent. The DEFAULT child takes the rows
-- of days without a partition, so that no commit fails for want of one. The only CHECK is that of the lane, because a row in a negative lane would never be seen:
-- PostgreSQL reads the text of each CHECK anew for every statement that writes a row, and five more would double the cost of the
-- INSERT. Envelopes are validated before they come here.
CREATE TABLE outbox (
    -- The transaction's id is assigned before the number is drawn. So a reader that sees all transactions up to an id finished has
    -- seen all numbers that they drew. The low-water mark of the relay rests on this.
    seq               bigint      NOT NULL DEFAULT CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval('outbox_seq') END,
    id                uuid        NOT NULL,
    occurred_at       timestamptz NOT NULL,
    created_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    not_before        timestamptz,
    expires_at        timestamptz,
    aggregate_version bigint      NOT NULL DEFAULT 0,
    schema_version    integer     NOT NULL DEFAULT 1,
    lane              smallint    NOT NULL CHECK (lane >= 0),
    max_attempts      smallint,                       -- NULL: as configured
    retry_count       smallint    NOT NULL DEFAULT 0, -- refusals by the broker
    crashes           smallint    NOT NULL DEFAULT 0, -- crashes of projectors while they published it
    tenant_id         text        NOT NULL,
    topic             text        NOT NULL,
    ordering_key      text,                           -- NULL: unordered
    aggregate_type    text        NOT NULL DEFAULT '',
    aggregate_id      text        NOT NULL DEFAULT '',
    event_type        text        NOT NULL,
    source            text        NOT NULL,
    routing_key       text,
    schema_id         text,
    content_type      text        NOT NULL DEFAULT 'application/json',
    dedup_key         text,
    -- JSON, as text: a subscriber of logical replication finds the row that it is to delete by all its columns, and json has no =.
    event_metadata    text        NOT NULL DEFAULT '{}',
    payload           bytea       NOT NULL
) PARTITION BY RANGE (created_at);
CREATE TABLE outbox_default PARTITION OF outbox DEFAULT
    WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_insert_threshold = -1);
-- The only index: its right edges, one per lane, serve insert, fetch and delete. It is not unique, because a unique one would have to
-- contain created_at; the sequence gives each number once.
CREATE INDEX outbox_turn ON outbox (lane, seq);

-- Which projector publishes what. Lane numbers are unique over all groups: group g owns the lanes g*64 .. g*64+63.
CREATE TABLE outbox_lane (
    lane        smallint    PRIMARY KEY,
    grp         smallint    NOT NULL DEFAULT 0,
    owner       text,
    epoch       bigint      NOT NULL DEFAULT 0,           -- counts owners; part of every fence
    lease_until timestamptz NOT NULL DEFAULT '-infinity',
    -- For how long the owner leases. A lease that ends much later was written before the clock went back.
    lease       interval    NOT NULL DEFAULT '0',
    change      bigint      NOT NULL DEFAULT 0,           -- counts what operators did; the owner then reloads its blocks
    -- Up to it all that is unsent is of tenants that are paused. Nothing is published by it: it is for the statistics alone, which would
    -- have to look for the first row of another tenant.
    passed_to   bigint      NOT NULL DEFAULT 0,
    -- Up to it all that is unsent is of transactions that were open when the owner looked last. It is for the statistics alone too, which would
    -- walk over all that has left while one of them stays open.
    open_to     bigint      NOT NULL DEFAULT 0,
    -- Below it the renewals have deleted what the lane had in outbox_claim.
    taken_from  bigint      NOT NULL DEFAULT 0
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);
INSERT INTO outbox_lane (lane) SELECT generate_series(0, 63);
ANALYZE outbox_lane; -- so that the first plans are those of 64 lanes and not of a thousand

-- How far the lanes have come: an entry for each batch and lane, added by the lane's owner under the lock of the lane. It is added and never
-- changed, so that reading the latest entry stays cheap while somebody holds an old snapshot, and so that it is known when a row was
-- sent: with the first entry of its lane that reaches its number.
CREATE SEQUENCE outbox_progress_n AS bigint CACHE 1;
CREATE TABLE outbox_progress (
    n     bigint         NOT NULL DEFAULT nextval('outbox_progress_n'),
    lane  smallint       NOT NULL,
    upto  bigint         NOT NULL,                           -- the highest number that was published, in its turn
    sent  bigint         NOT NULL,                           -- up to it nothing is unsent, nor ever will be
    ahead int8multirange NOT NULL,                           -- the published rows beyond sent
    total bigint         NOT NULL,                           -- how many rows of the lane were published in their turn
    at    timestamptz    NOT NULL DEFAULT clock_timestamp()
) PARTITION BY RANGE (at);
CREATE TABLE outbox_progress_default PARTITION OF outbox_progress DEFAULT WITH (autovacuum_vacuum_insert_threshold = -1);
CREATE INDEX outbox_progress_lane ON outbox_progress (lane, upto, n);

-- The rows that a projector has taken and may have on their way to the broker: the latest entry of each lane counts. The next owner must
-- know them if a projector vanishes, and so must a reader of the view. Unlogged: it is for the case that the projector dies and the server lives.
CREATE SEQUENCE outbox_claim_n AS bigint CACHE 1;
CREATE UNLOGGED TABLE outbox_claim (
    n      bigint   NOT NULL DEFAULT nextval('outbox_claim_n'),
    lane   smallint NOT NULL,
    upto   bigint   NOT NULL, -- rows up to it
    picked bigint[],          -- and these rows beyond it, which were taken out of turn
    PRIMARY KEY (lane, n)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_insert_threshold = -1);

-- Where each lane is. A row of outbox is unsent if its number is beyond sent and not in ahead.
CREATE VIEW outbox_cursor AS
SELECT l.lane, coalesce(p.upto, 0) AS upto, coalesce(p.sent, 0) AS sent, coalesce(p.ahead, '{}') AS ahead, coalesce(p.total, 0) AS total,
    coalesce(p.n, 0) AS n
FROM outbox_lane l LEFT JOIN LATERAL (
    -- A long list is stored compressed, and would be unpacked for each row that is compared with it. The result of an operator is not compressed.
    SELECT x.upto, x.sent, x.ahead + '{}' AS ahead, x.total, x.n FROM outbox_progress x WHERE x.lane = l.lane ORDER BY x.upto DESC, x.n DESC LIMIT 1) p ON true;

-- Projectors that are alive, so that lanes can be shared out evenly.
CREATE TABLE outbox_projector (
    owner      text        PRIMARY KEY,
    grp        smallint    NOT NULL DEFAULT 0,
    deployment text        NOT NULL DEFAULT '', -- as in outbox.Config.Deployment; '': none
    seen_until timestamptz NOT NULL,
    lease      interval    NOT NULL DEFAULT '0', -- for how long it says each time that it is alive
    error      text        NOT NULL DEFAULT '', -- why broker or topic last took nothing
    failed_at  timestamptz,                     -- when that was; NULL: never
    failing_since timestamptz,                  -- since when that goes on; NULL: broker or topic have taken something since
    failing_topic text     NOT NULL DEFAULT ''  -- the topic that took nothing; '': the broker
) WITH (fillfactor = 50);

-- One row, which is gone when the server has crashed and when a standby takes over: both empty all unlogged tables. What the server
-- has committed without waiting for the disk may be forgotten then, and a projector that lives on has to look again. A copy that keeps the row is
-- known by its writer, its place, or the start of its server.
CREATE UNLOGGED TABLE outbox_incarnation (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    id       uuid    NOT NULL DEFAULT gen_random_uuid()
);

-- Rows that wait: refused heads, what follows them under their key, delayed and replayed rows.
-- A follower has retry_after = infinity: it becomes due when the row before it is settled.
CREATE TABLE outbox_held (
    LIKE outbox,
    retry_after   timestamptz NOT NULL,
    error_message text,
    fingerprint   text        NOT NULL DEFAULT '', -- of the place and the cause of error_message; '': it was not refused
    cause_since   timestamptz,                     -- since when each try has failed with this fingerprint; NULL: it was not refused
    PRIMARY KEY (lane, seq)
);
-- With seq, because a million rows may become due at the same time: a reader that has gone past the rows of a paused topic remembers
-- the last of them.
CREATE INDEX outbox_held_due ON outbox_held (lane, retry_after, seq);
CREATE INDEX outbox_held_key ON outbox_held (lane, ordering_key, seq);
-- Delayed rows are cancelled and moved by their id, and listed by their aggregate.
CREATE INDEX outbox_held_id ON outbox_held (id) WHERE not_before IS NOT NULL AND ordering_key IS NULL;
CREATE INDEX outbox_held_delayed ON outbox_held (tenant_id, aggregate_type, aggregate_id, not_before, seq)
    WHERE not_before IS NOT NULL AND ordering_key IS NULL;
-- For the statistics: the rows with a time to come; the oldest row that waits although its time has come, among any number that
-- wait for their time; and the rows that were refused, among any number behind them. What is counted is in the index. The first is an index
-- of its own: with more columns, outbox_held_due would be so large that the planner sorts a million due rows instead of reading it.
CREATE INDEX outbox_held_timed ON outbox_held (lane, retry_after) INCLUDE (not_before, retry_count) WHERE retry_after < 'infinity';
CREATE INDEX outbox_held_waiting ON outbox_held (lane, seq) WHERE not_before IS NULL OR retry_count > 0;
CREATE INDEX outbox_held_refused ON outbox_held (lane, retry_count) INCLUDE (created_at, not_before, tenant_id) WHERE retry_count > 0;
-- The failures of each cause, among any number of rows that wait behind them.
CREATE INDEX outbox_held_cause ON outbox_held (fingerprint, cause_since) WHERE fingerprint <> '';

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

-- Dead letters. Producers may give one id to several events, so the id is no key. The primary key is the order in which many dead
-- letters are replayed: that of their keys, and of the locks of their lanes.
CREATE TABLE outbox_dead (
    LIKE outbox,
    died_at       timestamptz NOT NULL DEFAULT now(),
    error_message text,
    fingerprint   text        NOT NULL DEFAULT '', -- as in outbox_held
    PRIMARY KEY (lane, seq)
);
CREATE INDEX outbox_dead_id ON outbox_dead (id);
-- Lists of dead letters, by one property or none, each in the order of its pages.
CREATE INDEX outbox_dead_order ON outbox_dead (died_at, seq);
CREATE INDEX outbox_dead_tenant ON outbox_dead (tenant_id, died_at, seq);
CREATE INDEX outbox_dead_topic ON outbox_dead (topic, died_at, seq);
CREATE INDEX outbox_dead_type ON outbox_dead (event_type, died_at, seq);
CREATE INDEX outbox_dead_cause ON outbox_dead (fingerprint, died_at, seq);

-- What was published out of its turn: after a refusal, past the rows of a paused topic, after a replay. In daily partitions (UTC) that are
-- dropped after the retention. The DEFAULT child takes the rows of days without a partition, so that no settle fails for want of one.
CREATE TABLE outbox_sent (
    LIKE outbox,
    sent_at timestamptz NOT NULL
) PARTITION BY RANGE (sent_at);
CREATE TABLE outbox_sent_default PARTITION OF outbox_sent DEFAULT;

-- These three have no key that fits: the number alone is not unique across days. PostgreSQL refuses to delete from a table without an identity once
-- somebody publishes all tables of the database, as tools for upgrades and for change data capture do. Then each of their columns needs a type with
-- an =, by which subscribers find the row.
ALTER TABLE outbox REPLICA IDENTITY FULL;
ALTER TABLE outbox_default REPLICA IDENTITY FULL;
ALTER TABLE outbox_progress REPLICA IDENTITY FULL;
ALTER TABLE outbox_progress_default REPLICA IDENTITY FULL;
ALTER TABLE outbox_sent REPLICA IDENTITY FULL;
ALTER TABLE outbox_sent_default REPLICA IDENTITY FULL;

-- The tenants that have committed an event, entered in the same transaction, until there are 1000: a reader sees the tenants of all
-- rows that it could have seen before, or that there are many. Of two transactions that want to enter one, the second does not wait for the first: if that is
-- rolled back, the tenant is entered within a minute of its next events. And which group of lanes, and so of projectors, serves a tenant, and
-- whether an operator has paused it: its events wait then. What is known of its last pause stays after it was resumed, because its events
-- count as waiting from then on.
CREATE TABLE outbox_tenant (
    tenant_id    text        PRIMARY KEY,
    grp          smallint    NOT NULL DEFAULT 0 CHECK (grp >= 0),
    since        timestamptz NOT NULL DEFAULT clock_timestamp(), -- in this group
    paused_at    timestamptz,                                    -- NULL: it was never paused
    paused_by    text        CHECK (paused_by <> ''),
    pause_reason text,
    resumed_at   timestamptz,                                    -- NULL: it is paused, if it ever was
    CHECK (CASE WHEN paused_at IS NULL THEN num_nonnulls(paused_by, pause_reason, resumed_at) = 0 ELSE num_nonnulls(paused_by, pause_reason) = 2 END)
);
-- Relays read the pauses with each renewal, and there may be many tenants.
CREATE INDEX outbox_tenant_paused ON outbox_tenant (tenant_id) WHERE paused_at IS NOT NULL;

-- Counts moves of tenants. A sequence answers as of now and not as of the reader's snapshot: a flush that sees no number here knows
-- that no tenant ever moved, and does not call outbox_first_lane.
CREATE SEQUENCE outbox_moves AS bigint;

-- The old tables that package adopt takes over, for doctor and status: a mover enters its table, and the end of forwarding takes it out.
CREATE TABLE outbox_adopted (
    old_table  text        PRIMARY KEY,                    -- with its schema
    mapping    text        NOT NULL,                       -- in YAML, as last used
    since      timestamptz NOT NULL DEFAULT clock_timestamp(),
    moved      bigint      NOT NULL DEFAULT 0,             -- by movers; rows that the trigger forwards are not counted
    moved_at   timestamptz,                                -- the last of them; NULL: none
    looked_at  timestamptz,                                -- when a mover last looked for rows; NULL: none has
    stay       bigint      NOT NULL DEFAULT 0,             -- rows that no event can be made of, as of then
    inserted   bigint      NOT NULL DEFAULT 0,             -- into the old table, as the statistics of the server count
    written_at timestamptz,                                -- when a mover last saw that number change: old code writes; NULL: it never did
    error      text        NOT NULL DEFAULT '',            -- why rows were last not moved; '': they are
    failed_at  timestamptz                                 -- when that was; NULL: never
) WITH (fillfactor = 50);

-- The keys that producers gave their events (event.WithDedupKey), each with the first event of that key. A later event of the same
-- key is not stored; it is counted here.
CREATE TABLE outbox_dedup (
    tenant_id  text        NOT NULL,
    dedup_key  text        NOT NULL,
    event_id   uuid        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(), -- the time of a delayed event: until then it can be cancelled by its key
    repeats    bigint      NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, dedup_key)
);
CREATE INDEX outbox_dedup_age ON outbox_dedup (created_at);

SELECT oncebox_create($text$
-- What the owners of lanes have taken. None on a standby, which has no rows of unlogged tables and refuses each statement that names one: the plans of
-- a function are made when its statements are come to. It has the rights of the owner, as a view has.
CREATE FUNCTION outbox_claimed() RETURNS TABLE (lane smallint, upto bigint, picked bigint[])
LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 64 SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
    IF NOT pg_is_in_recovery() THEN
        RETURN QUERY SELECT l.lane, c.upto, c.picked
        FROM {schema}.outbox_lane l CROSS JOIN LATERAL (
            SELECT x.upto, x.picked FROM {schema}.outbox_claim x WHERE x.lane = l.lane ORDER BY x.n DESC LIMIT 1) c
        WHERE l.owner IS NOT NULL;
    END IF;
END $f$;
$text$);
REVOKE ALL ON FUNCTION outbox_claimed() FROM PUBLIC;

-- What the owners of live leases have taken.
CREATE VIEW outbox_taken AS
SELECT l.lane, c.upto, c.picked FROM outbox_claimed() c JOIN outbox_lane l ON l.lane = c.lane WHERE l.lease_until > clock_timestamp();

-- The rows of outbox that are not published. OFFSET keeps the planner to one lane after the other: it would read the whole history.
CREATE VIEW outbox_unsent AS
SELECT o.* FROM outbox_cursor c CROSS JOIN LATERAL (
    SELECT x.* FROM outbox x WHERE x.lane = c.lane AND x.seq > c.sent AND NOT x.seq <@ c.ahead OFFSET 0) o;

-- Two views over tables that have the columns of outbox. {columns of x} becomes the list of these columns in x, with the metadata as json.
SELECT oncebox_create(regexp_replace($text$
-- Published rows, wherever they are. within is the column by whose days they are partitioned.
CREATE VIEW outbox_published AS
SELECT o.tableoid AS child, o.ctid AS place, o.created_at AS within, {columns of o},
    (SELECT p.at FROM outbox_progress p WHERE p.lane = o.lane AND p.upto >= o.seq ORDER BY p.upto, p.n LIMIT 1) AS sent_at
FROM outbox o JOIN outbox_cursor c ON c.lane = o.lane WHERE o.seq <= c.sent OR o.seq <@ c.ahead
UNION ALL
SELECT s.tableoid, s.ctid, s.sent_at, {columns of s}, s.sent_at FROM outbox_sent s;

-- All events as one table, for people and for tools. Names of columns and states are promised. sequence is the promised name of seq.
-- max_attempts is NULL where the configuration decides. PUBLISHING is an approximation: the owner of a live lease has fetched the row. On a standby
-- such a row is NEW.
-- Each part has its own status, and that of published rows is constant: a query for the others, as operators write it, does not read them.
CREATE VIEW outbox_messages AS
SELECT m.*, m.seq AS sequence, m.status NOT IN ('SENT', 'DEAD') AND EXISTS (
    SELECT FROM outbox_tenant p WHERE p.tenant_id = m.tenant_id AND p.paused_at IS NOT NULL AND p.resumed_at IS NULL) AS paused
FROM (
    SELECT {columns of o}, CASE WHEN t.upto IS NOT NULL THEN 'PUBLISHING' ELSE 'NEW' END AS status,
        NULL::timestamptz AS retry_after, NULL::text AS error_message, NULL::timestamptz AS sent_at, NULL::timestamptz AS died_at
    FROM outbox_unsent o LEFT JOIN outbox_taken t ON t.lane = o.lane AND (o.seq <= t.upto OR o.seq = ANY (t.picked))
    UNION ALL
    SELECT {columns of p}, 'SENT', NULL, NULL, p.sent_at, NULL FROM outbox_published p
    UNION ALL
    SELECT {columns of h}, CASE WHEN h.retry_count > 0 THEN 'FAILED' ELSE 'NEW' END, nullif(h.retry_after, 'infinity'), h.error_message, NULL, NULL
    FROM outbox_held h
    UNION ALL
    SELECT {columns of d}, 'DEAD', NULL, d.error_message, NULL, d.died_at FROM outbox_dead d) m;
$text$, '{columns of (\w+)}', (
    SELECT string_agg('\1.' || attname || CASE attname WHEN 'event_metadata' THEN '::json AS event_metadata' ELSE '' END, ', ' ORDER BY attnum)
    FROM pg_attribute WHERE attrelid = 'outbox'::regclass AND attnum > 0), 'g'));

SELECT oncebox_create($text$
-- The first lane of a tenant's group. The caller holds the locks of the ordering keys. A move of the tenant takes them as well, so no
-- move is under way. VOLATILE gives the look at outbox_tenant a snapshot of its own, taken after the locks. Above READ COMMITTED
-- there is only the transaction's snapshot; there the row lock fails with 40001 if a tenant moved after that was taken, because each
-- move updates the row.
CREATE FUNCTION outbox_first_lane(tenant text) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
    found integer;
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        PERFORM FROM {schema}.oncebox_settings FOR SHARE;
    END IF;
    SELECT t.grp * l.lanes INTO found FROM {schema}.outbox_tenant t, {schema}.oncebox_settings l WHERE t.tenant_id = tenant;
    RETURN coalesce(found, 0);
END $f$;

-- The hash that decides lane and lock of an ordering key, as two halves of 32 bits: FNV-1a with the finalizer of MurmurHash3, over the
-- bytes of the key in UTF-8. It is the one of hash_version 1, which the Go writers have too, and never changes.
CREATE FUNCTION outbox_hash(key text, OUT high bigint, OUT low bigint)
LANGUAGE plpgsql IMMUTABLE STRICT AS $f$
DECLARE
    bytes CONSTANT bytea := convert_to(key, 'UTF8');
    word CONSTANT bigint := 4294967296; -- 2^32
    product bigint;
    whole numeric;
    factor numeric;
BEGIN
    high := 3421674724; -- 0xcbf29ce484222325
    low := 2216829733;
    FOR i IN 0 .. length(bytes) - 1 LOOP
        low := low # get_byte(bytes, i);
        product := low * 435; -- the prime is 2^40 + 435
        high := (high * 435 + product / word + (low << 8)) % word;
        low := product % word;
    END LOOP;
    FOREACH factor IN ARRAY ARRAY[18397679294719823053, 14181476777654086739] LOOP -- 0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53
        low := low # (high >> 1);
        whole := (high::numeric * word + low) * factor;
        low := mod(whole, word);
        high := mod(div(whole, word), word);
    END LOOP;
    low := low # (high >> 1);
END $f$;

-- The next three are for package adopt, which reads tables of others. A cast would make the whole statement fail because of one row, so they return
-- NULL in place of an error.

-- A part of a text that should be JSON, as text; NULL if it is not JSON or has no such part.
CREATE FUNCTION oncebox_json(of bytea, path text[]) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
    RETURN convert_from(oncebox_json.of, 'UTF8')::json #>> path;
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END $f$;

-- A time: the number of seconds (s), milliseconds (ms), microseconds (us) or nanoseconds (ns) since 1970, or a text ('') such as that of ISO 8601. A
-- text without a zone is in UTC.
CREATE FUNCTION oncebox_time(of text, unit text) RETURNS timestamptz LANGUAGE plpgsql STABLE STRICT SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC' SET datestyle = 'ISO, YMD' AS $f$
DECLARE
    at timestamptz;
BEGIN
    at := CASE unit
        WHEN '' THEN oncebox_time.of::timestamptz
        WHEN 's' THEN timestamptz 'epoch' + floor(oncebox_time.of::numeric * 1000000)::float8 * interval '1 microsecond'
        WHEN 'ms' THEN timestamptz 'epoch' + floor(oncebox_time.of::numeric * 1000)::float8 * interval '1 microsecond'
        WHEN 'us' THEN timestamptz 'epoch' + floor(oncebox_time.of::numeric)::float8 * interval '1 microsecond'
        WHEN 'ns' THEN timestamptz 'epoch' + floor(oncebox_time.of::numeric / 1000)::float8 * interval '1 microsecond' END;
    RETURN CASE WHEN isfinite(at) THEN at END;
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END $f$;

-- The entries of a header, as an object of texts. of is an object, a list of pairs (["k", "v"], or objects with key or name, and value), or the text of
-- an hstore. Values that are no texts stay the JSON that they are, and null is left out.
CREATE FUNCTION oncebox_headers(of bytea) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
    given text;
    parsed json;
    entry CONSTANT text := '("(?:[^"\\]|\\.)*"|[^\s",=>]+)\s*=>\s*("(?:[^"\\]|\\.)*"|[^\s",=>]+)'; -- of an hstore
BEGIN
    given := convert_from(oncebox_headers.of, 'UTF8');
    IF btrim(given) = '' THEN
        RETURN '{}';
    END IF;
    BEGIN
        parsed := given::json;
    EXCEPTION WHEN data_exception THEN
        IF btrim(regexp_replace(given, entry, '', 'g'), E' ,\t\r\n') <> '' THEN
            RETURN NULL;
        END IF;
        RETURN coalesce((
            SELECT jsonb_object_agg(regexp_replace(regexp_replace(e[1], '^"|"$', '', 'g'), '\\(.)', '\1', 'g'),
                regexp_replace(regexp_replace(e[2], '^"|"$', '', 'g'), '\\(.)', '\1', 'g'))
            FROM regexp_matches(given, entry, 'g') e WHERE upper(e[2]) <> 'NULL'), '{}');
    END;
    CASE json_typeof(parsed)
    WHEN 'object' THEN
        RETURN coalesce((
            SELECT jsonb_object_agg(m.key, CASE json_typeof(m.value) WHEN 'string' THEN m.value #>> '{}' ELSE m.value::text END)
            FROM json_each(parsed) m WHERE json_typeof(m.value) <> 'null'), '{}');
    WHEN 'array' THEN
        RETURN (
            SELECT CASE WHEN bool_and(p.name IS NOT NULL) IS NOT FALSE THEN coalesce(jsonb_object_agg(p.name, CASE json_typeof(p.value)
                WHEN 'string' THEN p.value #>> '{}' ELSE p.value::text END) FILTER (WHERE p.name IS NOT NULL AND json_typeof(p.value) <> 'null'), '{}') END
            FROM (
                SELECT CASE json_typeof(x) WHEN 'array' THEN CASE json_array_length(x) WHEN 2 THEN x ->> 0 END
                        WHEN 'object' THEN coalesce(x ->> 'key', x ->> 'Key', x ->> 'name', x ->> 'Name') END AS name,
                    CASE json_typeof(x) WHEN 'array' THEN x -> 1 WHEN 'object' THEN coalesce(x -> 'value', x -> 'Value') END AS value
                FROM json_array_elements(parsed) x) p);
    WHEN 'null' THEN
        RETURN '{}';
    ELSE
        RETURN NULL;
    END CASE;
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END $f$;

-- Adds an event within the caller's transaction, as outbox.Store.Add does, for writers in other languages and for triggers. It returns
-- the event's id, or that of the earlier event that it repeats by its dedup_key. Pass what stands behind event_type by name:
--
--     SELECT oncebox_add('order', '{"total": 42}', 'order.placed', aggregate_type => 'order', aggregate_id => 'o-1', source => 'shop');
--
-- A payload that is not JSON, or whose bytes must stay as they are, is passed as payload_bytes with its content_type, beside payload => NULL. If the
-- content_type is one of JSON, the bytes must be valid JSON.
--
-- refused is why the event is no valid one, for a caller who may not fail: then nothing is refused. The event is stored as far as it can be, and
-- becomes a dead letter in its turn, which holds up later events of its key. An operator replays it with another payload, or discards it.
--
-- '' and NULL mean "not set". source names the service; without it the setting oncebox.source counts (ALTER ROLE shop SET
-- oncebox.source = 'shop'). metadata is an object of strings. All checks are those of the Go writers; what they refuse fails with 22023.
-- A commit wakes no projector: the event leaves when a projector polls.
--
-- The caller needs EXECUTE on it and no right to any table. Add once per transaction, or with one ordering key only: two transactions
-- that add to two keys in different orders can deadlock. Outside of a transaction the event is committed by itself.
CREATE FUNCTION oncebox_add(topic text, payload jsonb, event_type text, aggregate_type text DEFAULT '', aggregate_id text DEFAULT '',
    tenant_id text DEFAULT 'default', metadata jsonb DEFAULT '{}', aggregate_version bigint DEFAULT 0, ordering_key text DEFAULT '',
    routing_key text DEFAULT '', dedup_key text DEFAULT '', not_before timestamptz DEFAULT NULL, expires_at timestamptz DEFAULT NULL,
    max_attempts integer DEFAULT 0, source text DEFAULT '', schema_id text DEFAULT '', schema_version integer DEFAULT 1,
    occurred_at timestamptz DEFAULT NULL, id uuid DEFAULT NULL, max_payload integer DEFAULT 1048576, payload_bytes bytea DEFAULT NULL,
    content_type text DEFAULT 'application/json', refused text DEFAULT NULL) RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $f$
#variable_conflict use_column
DECLARE
    v_refused CONSTANT boolean := coalesce(oncebox_add.refused, '') <> '';
    v_most CONSTANT integer := CASE WHEN v_refused THEN 255 ELSE 2147483647 END; -- an index of dead letters takes no long texts
    v_topic CONSTANT text := left(coalesce(oncebox_add.topic, ''), v_most);
    v_type CONSTANT text := left(coalesce(nullif(oncebox_add.event_type, ''), v_topic), v_most);
    v_kind CONSTANT text := coalesce(oncebox_add.aggregate_type, '');
    v_aggregate CONSTANT text := coalesce(oncebox_add.aggregate_id, '');
    v_tenant CONSTANT text := left(coalesce(nullif(oncebox_add.tenant_id, ''), 'default'), v_most);
    v_key CONSTANT text := coalesce(oncebox_add.ordering_key, '');
    v_routing CONSTANT text := coalesce(nullif(oncebox_add.routing_key, ''), nullif(v_key, ''), v_aggregate);
    v_timed CONSTANT boolean := v_key = '' AND v_aggregate <> '' AND oncebox_add.not_before IS NOT NULL; -- in an order of its own
    v_dedup CONSTANT text := coalesce(oncebox_add.dedup_key, '');
    v_source CONSTANT text := coalesce(nullif(oncebox_add.source, ''), current_setting('oncebox.source', true), '');
    v_metadata CONSTANT jsonb := CASE WHEN v_refused
        THEN CASE jsonb_typeof(oncebox_add.metadata) WHEN 'object' THEN oncebox_add.metadata ELSE '{}' END || jsonb_build_object('oncebox.refused', oncebox_add.refused)
        ELSE coalesce(oncebox_add.metadata, '{}') END;
    v_occurred CONSTANT timestamptz := CASE WHEN oncebox_add.occurred_at IS NULL
            OR v_refused AND (oncebox_add.occurred_at < '0001-01-01 00:00:00Z' OR oncebox_add.occurred_at >= '10000-01-01 00:00:00Z')
        THEN clock_timestamp() ELSE oncebox_add.occurred_at END;
    v_bytes CONSTANT bytea := coalesce(oncebox_add.payload_bytes, convert_to(oncebox_add.payload::text, 'UTF8'));
    v_content CONSTANT text := coalesce(nullif(oncebox_add.content_type, ''), 'application/json');
    v_id uuid := oncebox_add.id;
    ordering text;
    bad text;
    layout record;
    hash record;
    lane integer;
    earlier record;
BEGIN
    SELECT v.field || ' ' || CASE
            WHEN v.value = '' THEN 'is empty'
            WHEN octet_length(convert_to(v.value, 'UTF8')) > 255 THEN 'has more than 255 bytes'
            ELSE 'contains a control character' END INTO bad
    FROM (VALUES ('topic', v_topic, true), ('event_type', v_type, true), ('source', v_source, true), ('tenant_id', v_tenant, true),
            ('aggregate_type', v_kind, v_aggregate <> ''), ('aggregate_id', v_aggregate, v_kind <> ''), ('ordering_key', v_key, false),
            ('routing_key', v_routing, false), ('dedup_key', v_dedup, false), ('schema_id', coalesce(oncebox_add.schema_id, ''), false),
            ('content_type', v_content, false)
        ) v (field, value, required)
    WHERE v.value = '' AND v.required OR octet_length(convert_to(v.value, 'UTF8')) > 255 OR v.value ~ '[\u0001-\u001f\u007f-\u009f]'
    LIMIT 1;
    bad := coalesce(bad, CASE
        WHEN v_topic ~ '[/%]|\.\.' THEN 'topic must not contain "/", "%" or ".."'
        WHEN v_topic = '.' THEN 'topic must not be "."'
        WHEN v_topic ~ '^[ \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]|[ \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]$'
            THEN 'topic begins or ends with a blank'
        WHEN v_key <> '' AND v_routing <> v_key THEN 'routing_key and ordering_key differ: leave one of them out'
        WHEN v_bytes IS NULL THEN 'payload is NULL'
        WHEN num_nonnulls(oncebox_add.payload, oncebox_add.payload_bytes) > 1 THEN 'payload and payload_bytes are both given: leave one of them out'
        WHEN max_payload >= 0 AND length(v_bytes) > max_payload THEN
            'payload has ' || length(v_bytes) || ' bytes, and max_payload is ' || max_payload || ': store it elsewhere and send a reference'
        WHEN jsonb_typeof(v_metadata) <> 'object' THEN 'metadata is not an object'
        WHEN coalesce(oncebox_add.aggregate_version, 0) < 0 THEN 'aggregate_version is negative'
        WHEN coalesce(oncebox_add.schema_version, 0) < 0 THEN 'schema_version is negative'
        WHEN coalesce(oncebox_add.max_attempts, 0) NOT BETWEEN 0 AND 32767 THEN 'max_attempts is not from 0 to 32767' END);
    IF bad IS NULL THEN
        SELECT 'metadata: ' || CASE
                WHEN m.value IS NULL OR jsonb_typeof(v_metadata -> m.key) <> 'string' THEN quote_literal(m.key) || ' is not a string'
                ELSE 'the key ' || quote_literal(m.key) || ' is empty, longer than 255 bytes, or contains a control character' END INTO bad
        FROM jsonb_each_text(v_metadata) m
        WHERE jsonb_typeof(v_metadata -> m.key) <> 'string' OR m.key = '' OR octet_length(convert_to(m.key, 'UTF8')) > 255
            OR m.key ~ '[\u0001-\u001f\u007f-\u009f]'
        LIMIT 1;
        SELECT coalesce(bad, 'metadata takes ' || sum(octet_length(m.key) + octet_length(m.value)) || ' bytes, at most 65536 are allowed') INTO bad
        FROM jsonb_each_text(v_metadata) m HAVING bad IS NOT NULL OR sum(octet_length(m.key) + octet_length(m.value)) > 65536;
        SELECT coalesce(bad, v.field || ' is not in the years from 1 to 9999') INTO bad
        FROM (VALUES ('occurred_at', v_occurred), ('not_before', oncebox_add.not_before), ('expires_at', oncebox_add.expires_at)) v (field, at)
        WHERE bad IS NOT NULL OR v.at < '0001-01-01 00:00:00Z' OR v.at >= '10000-01-01 00:00:00Z'
        LIMIT 1;
    END IF;
    IF bad IS NULL AND oncebox_add.payload_bytes IS NOT NULL AND v_content ~ '^([^;]*[+]|application/)json\s*(;|$)' THEN
        BEGIN
            PERFORM convert_from(v_bytes, 'UTF8')::json;
        EXCEPTION WHEN data_exception THEN
            bad := 'payload_bytes is not valid JSON: ' || SQLERRM;
        END;
    END IF;
    IF bad IS NOT NULL AND NOT v_refused THEN
        RAISE EXCEPTION 'oncebox_add: %', bad USING ERRCODE = '22023', HINT = CASE WHEN bad = 'source is empty' THEN
            'Pass source => ''the name of this service'', or set oncebox.source for the role or the session.' ELSE '' END;
    END IF;

    -- As event.Envelope.OrderingKey: the parts are joined by "|", which is escaped within a part.
    ordering := CASE
        -- No valid event has such a key, so none waits for this one.
        WHEN v_refused AND greatest(octet_length(v_key), octet_length(v_kind), octet_length(v_aggregate)) > 255 THEN NULL
        WHEN v_key <> '' THEN regexp_replace(v_tenant, '([\\|])', '\\\1', 'g') || '|' || regexp_replace(v_key, '([\\|])', '\\\1', 'g')
        WHEN v_aggregate <> '' AND NOT v_timed THEN regexp_replace(v_tenant, '([\\|])', '\\\1', 'g') || '|' || regexp_replace(v_kind, '([\\|])', '\\\1', 'g')
            || '|' || regexp_replace(v_aggregate, '([\\|])', '\\\1', 'g') END;
    v_id := coalesce(v_id, encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
        PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid);
    SELECT * INTO STRICT layout FROM {schema}.oncebox_settings;
    IF layout.hash_version <> 1 THEN
        RAISE EXCEPTION 'oncebox_add: the tables use hash version %, and this function only version 1', layout.hash_version USING HINT = 'Call migrations.Up (App.Migrate): it replaces the function.';
    END IF;

    -- The order of all writers: dedup key, lock of the ordering key, number, tenant. The lock is held to the end of the transaction.
    IF v_dedup <> '' THEN
        INSERT INTO {schema}.outbox_dedup AS d (tenant_id, dedup_key, event_id, created_at)
        VALUES (v_tenant, v_dedup, v_id, greatest(clock_timestamp(), oncebox_add.not_before))
        ON CONFLICT (tenant_id, dedup_key) DO UPDATE SET repeats = d.repeats + 1
        RETURNING event_id, repeats > 0 AS repeated INTO earlier;
        IF earlier.repeated THEN
            RETURN earlier.event_id;
        END IF;
    END IF;
    hash := {schema}.outbox_hash(coalesce(ordering, v_id::text));
    lane := hash.low & (layout.lanes - 1);
    IF ordering IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock(layout.lock_space, (hash.high % 4096)::integer);
    END IF;
    IF pg_sequence_last_value('{schema}.outbox_moves') IS NOT NULL THEN
        lane := lane + {schema}.outbox_first_lane(v_tenant);
    END IF;
    INSERT INTO {schema}.outbox (id, occurred_at, aggregate_version, schema_version, lane, tenant_id, topic, ordering_key, aggregate_type,
        aggregate_id, event_type, source, routing_key, schema_id, dedup_key, event_metadata, payload, content_type, not_before, expires_at, max_attempts)
    VALUES (v_id, v_occurred, coalesce(oncebox_add.aggregate_version, 0), greatest(oncebox_add.schema_version, 1), lane, v_tenant, v_topic,
        ordering, v_kind, v_aggregate, v_type, v_source,
        CASE WHEN v_timed THEN coalesce(nullif(oncebox_add.routing_key, ''), v_id::text) ELSE nullif(v_routing, '') END, nullif(oncebox_add.schema_id, ''), nullif(v_dedup, ''),
        -- as the Go writers write it
        (SELECT '{' || coalesce(string_agg(to_json(m.key) || ':' || to_json(m.value), ',' ORDER BY m.key COLLATE "C"), '') || '}' FROM jsonb_each_text(v_metadata) m),
        coalesce(v_bytes, ''), v_content, oncebox_add.not_before, oncebox_add.expires_at, nullif(oncebox_add.max_attempts, 0));
    IF NOT FOUND THEN
        RAISE EXCEPTION 'oncebox_add: the event was not stored, because a trigger on the table outbox returned NULL for its row'
            USING HINT = 'Drop or correct that trigger.';
    END IF;
    INSERT INTO {schema}.outbox_tenant (tenant_id)
    SELECT v_tenant WHERE NOT EXISTS (SELECT FROM {schema}.outbox_tenant t WHERE t.tenant_id = v_tenant)
        AND (SELECT count(*) < 1000 FROM (SELECT FROM {schema}.outbox_tenant LIMIT 1000) entered)
        AND pg_try_advisory_xact_lock(layout.lock_space # 1, hashtext(v_tenant) & 255) -- or it would wait for another that enters it
    ON CONFLICT DO NOTHING;
    RETURN v_id;
END $f$;

-- Makes the children of one day, of outbox, outbox_progress and outbox_sent. false: they were there already, or so many rows of the day lie
-- in a DEFAULT child that they stay there until the retention removes them. wait is the lock_timeout, and the longest stall that waiting
-- here can cause: while one session waits for a lock on a table, all others wait behind it. 55P03: try again.
CREATE FUNCTION outbox_make_partition(day date, wait interval DEFAULT '50 ms') RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '50 ms' AS $f$
DECLARE
    lo CONSTANT timestamptz := day::timestamp AT TIME ZONE 'UTC';
    hi CONSTANT timestamptz := (day + 1)::timestamp AT TIME ZONE 'UTC';
    few CONSTANT integer := 10000;
    made boolean := false;
    many boolean;
    moves boolean;
    parent regclass;
    rest regclass;
    child text;
    key text;
    options text;
BEGIN
    PERFORM set_config('lock_timeout', (extract(epoch FROM wait) * 1000)::int::text, true);
    -- outbox comes last, so that its locks are held for the shortest time: commits need it.
    FOR parent, rest, child, key, options IN VALUES
        ('{schema}.outbox_sent'::regclass, '{schema}.outbox_sent_default'::regclass, '{schema}.outbox_sent_', 'sent_at', ''),
        ('{schema}.outbox_progress'::regclass, '{schema}.outbox_progress_default'::regclass, '{schema}.outbox_progress_', 'at', ''),
        ('{schema}.outbox'::regclass, '{schema}.outbox_default'::regclass, '{schema}.outbox_', 'created_at',
            'autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0, ')
    LOOP
        child := child || to_char(day, 'YYYYMMDD');
        CONTINUE WHEN EXISTS (SELECT FROM pg_inherits WHERE inhparent = parent AND inhrelid = to_regclass(child));
        -- ATTACH takes this lock as well. Taken first, it makes two that want the same child take turns.
        EXECUTE format('LOCK TABLE %s IN SHARE UPDATE EXCLUSIVE MODE', parent);
        CONTINUE WHEN EXISTS (SELECT FROM pg_inherits WHERE inhparent = parent AND inhrelid = to_regclass(child));
        EXECUTE format('SELECT count(*) > $3 FROM (SELECT FROM %s WHERE %I >= $1 AND %I < $2 LIMIT $3 + 1) x', rest, key, key)
            INTO many USING lo, hi, few;
        CONTINUE WHEN many;
        -- ATTACH refuses a child whose rows lie in the DEFAULT one, so the few that were faster than this function move over.
        EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', rest);
        EXECUTE format('CREATE TABLE IF NOT EXISTS %s (LIKE %s INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)
            WITH (%s autovacuum_vacuum_insert_threshold = -1)', child, parent, options);
        EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', child);
        IF (SELECT count(DISTINCT relowner) FROM pg_class WHERE oid IN (parent, to_regclass(child))) > 1 THEN
            RAISE EXCEPTION 'outbox_make_partition: the tables % and % must belong to the same role', to_regclass(child), (SELECT relname FROM pg_class WHERE oid = parent)
                USING ERRCODE = '42501', HINT = 'Rename or drop the first table, or change its owner.';
        END IF;
        EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE %I >= %L AND %I < %L)', rest, key, lo, key, hi) INTO moves;
        IF moves THEN
            -- They come into the child when it is one: what is inserted into another table is not replicated as a row of the parent.
            EXECUTE format('CREATE UNLOGGED TABLE %s_moved AS SELECT * FROM %s WHERE %I >= %L AND %I < %L', child, rest, key, lo, key, hi);
            EXECUTE format('DELETE FROM %s WHERE %I >= %L AND %I < %L', rest, key, lo, key, hi);
        END IF;
        EXECUTE format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%L) TO (%L)', parent, child, lo, hi);
        IF moves THEN
            EXECUTE format('INSERT INTO %s SELECT * FROM %1$s_moved', child);
            EXECUTE format('DROP TABLE %s_moved', child);
        END IF;
        made := true;
    END LOOP;
    RETURN made;
END $f$;

-- Drops a child of one day: of outbox_sent; of outbox, unless something in it is unsent; or of outbox_progress, unless rows of that day or
-- an earlier one are left whose time it has. false: there is no child, or it stays. It refuses to touch the last 24 hours, whatever day it is
-- given. See outbox_make_partition for wait.
CREATE FUNCTION outbox_drop_partition(day date, wait interval DEFAULT '50 ms', kind text DEFAULT 'outbox_sent') RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '50 ms' AS $f$
DECLARE
    parent regclass;
    child text;
    stays boolean := false;
BEGIN
    IF NOT isfinite(day) OR (day + 1)::timestamp AT TIME ZONE 'UTC' > clock_timestamp() - interval '24 hours' THEN
        RAISE EXCEPTION 'outbox_drop_partition: the day % must have ended more than 24 hours ago', day USING ERRCODE = '22023';
    END IF;
    IF kind NOT IN ('outbox', 'outbox_sent', 'outbox_progress') THEN
        RAISE EXCEPTION 'outbox_drop_partition: the table % has no partitions by day: give outbox, outbox_sent or outbox_progress', kind USING ERRCODE = '22023';
    END IF;
    parent := '{schema}.outbox'::regclass;
    IF kind <> 'outbox' THEN
        parent := CASE kind WHEN 'outbox_sent' THEN '{schema}.outbox_sent'::regclass ELSE '{schema}.outbox_progress'::regclass END;
    END IF;
    child := '{schema}.' || kind || '_' || to_char(day, 'YYYYMMDD');
    IF NOT EXISTS (SELECT FROM pg_inherits WHERE inhparent = parent AND inhrelid = to_regclass(child)) THEN
        RETURN false;
    END IF;
    PERFORM set_config('lock_timeout', (extract(epoch FROM wait) * 1000)::int::text, true);
    -- DROP takes this lock as well. Taken first, it makes two that want the same child take turns, and keeps rows from changing.
    EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', parent);
    IF NOT EXISTS (SELECT FROM pg_inherits WHERE inhparent = parent AND inhrelid = to_regclass(child)) THEN
        RETURN false;
    END IF;
    IF kind = 'outbox' THEN
        -- By the lanes of the rows, and not by outbox_lane: nothing is published of a lane that somebody has deleted there.
        EXECUTE format('WITH RECURSIVE l AS (
                (SELECT o.lane FROM %1$s o ORDER BY o.lane LIMIT 1)
                UNION ALL SELECT (SELECT o.lane FROM %1$s o WHERE o.lane > l.lane ORDER BY o.lane LIMIT 1) FROM l WHERE l.lane IS NOT NULL)
            SELECT EXISTS (SELECT FROM l LEFT JOIN %2$s c USING (lane) CROSS JOIN LATERAL (
                SELECT FROM %1$s o WHERE o.lane = l.lane AND o.seq > coalesce(c.sent, 0) AND (o.seq <@ c.ahead) IS NOT TRUE LIMIT 1) x)',
            child, '{schema}.outbox_cursor'::regclass) INTO stays;
    ELSIF kind = 'outbox_progress' THEN
        SELECT count(*) > 0 INTO stays FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = '{schema}.outbox'::regclass AND c.relname ~ '^outbox_[0-9]{8}$' AND to_date(right(c.relname, 8), 'YYYYMMDD') <= day;
        stays := stays OR EXISTS (SELECT FROM {schema}.outbox_default WHERE created_at < (day + 1)::timestamp AT TIME ZONE 'UTC');
        IF NOT stays THEN -- the latest entry of a lane that has been idle since moves on
            EXECUTE format('INSERT INTO %s (lane, upto, sent, ahead, total) SELECT c.lane, c.upto, c.sent, c.ahead, c.total FROM %s c
                WHERE c.upto > 0 AND c.upto = (SELECT max(x.upto) FROM %s x WHERE x.lane = c.lane)',
                parent, '{schema}.outbox_cursor'::regclass, child);
        END IF;
    END IF;
    IF stays THEN
        RETURN false;
    END IF;
    EXECUTE format('DROP TABLE %s', child);
    RETURN true;
END $f$;
$text$);
REVOKE ALL ON FUNCTION outbox_first_lane, outbox_hash, oncebox_add, outbox_make_partition, outbox_drop_partition FROM PUBLIC;

-- From the first commit on, rows lie in the child of their day.
SELECT outbox_make_partition((clock_timestamp() AT TIME ZONE 'UTC')::date + n, '1 min') FROM generate_series(0, 1) n;

-- What psql shows of them (\dt+).
COMMENT ON TABLE outbox IS 'The log of events: one row each, in daily partitions.';
COMMENT ON TABLE outbox_default IS 'Events of days without a partition.';
COMMENT ON TABLE outbox_lane IS 'Which relay publishes which lane: owner, epoch and lease.';
COMMENT ON TABLE outbox_progress IS 'How far each lane has come: an entry for each batch, in daily partitions.';
COMMENT ON TABLE outbox_progress_default IS 'Entries of outbox_progress of days without a partition.';
COMMENT ON TABLE outbox_claim IS 'The events that relays have taken and may have on their way to the broker.';
COMMENT ON TABLE outbox_incarnation IS 'One row that is gone after a crash of the server and another one after a restore, so that relays notice both.';
COMMENT ON TABLE outbox_projector IS 'Which relays are alive, and why the broker or a topic last took nothing from each.';
COMMENT ON TABLE outbox_held IS 'Events that wait: refused by the broker, behind a refused one, delayed or replayed.';
COMMENT ON TABLE outbox_block IS 'The ordering keys whose first event is held or dead.';
COMMENT ON TABLE outbox_dead IS 'Events that were given up: the dead letters of the outbox.';
COMMENT ON TABLE outbox_sent IS 'Events that were published out of their turn, in daily partitions.';
COMMENT ON TABLE outbox_sent_default IS 'Events of outbox_sent of days without a partition.';
COMMENT ON TABLE outbox_tenant IS 'The first 1000 tenants that have stored an event, and all that were moved to a group of lanes or paused.';
COMMENT ON TABLE outbox_adopted IS 'The old tables that oncebox adopt takes over.';
COMMENT ON TABLE outbox_dedup IS 'The keys by which producers keep an event from being stored twice, each with its first event.';
COMMENT ON VIEW outbox_cursor IS 'The latest entry of outbox_progress of each lane.';
COMMENT ON VIEW outbox_taken IS 'The latest entry of outbox_claim of each lane that a relay has.';
COMMENT ON VIEW outbox_unsent IS 'The rows of outbox that are not published.';
COMMENT ON VIEW outbox_published IS 'The rows of outbox that are published.';
COMMENT ON VIEW outbox_messages IS 'Every event of the outbox, wherever it is stored, with its status.';

INSERT INTO oncebox_migrations (name) VALUES ('20261121000001_outbox.up.sql');
