-- The inbox: which consumer has handled which message, and the messages that wait or were given up.
-- Needs 20261121000000_oncebox.up.sql and no other file.

-- Which consumer has handled which message. Partitioned by the day in the UUIDv7 of the message, so that a redelivered message
-- meets its own row wherever it comes from, and old days are dropped, never deleted.
CREATE TABLE inbox (
    message_key  uuid        NOT NULL, -- the id itself if it is a UUIDv7, else ff... as UUIDv8, a hash of source and id
    consumer     text        NOT NULL,
    tenant_id    text        NOT NULL,
    source       text        NOT NULL,
    processed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (message_key, consumer, tenant_id, source)
) PARTITION BY RANGE (message_key);

-- Messages whose day has no child.
CREATE TABLE inbox_default PARTITION OF inbox DEFAULT;
CREATE INDEX inbox_default_age ON inbox_default (processed_at);

-- Ids without a day: their hashes begin with ff. They may be many, and in the DEFAULT child they would make each ATTACH scan it for
-- as long, under a lock that handlers wait for.
CREATE TABLE inbox_foreign PARTITION OF inbox FOR VALUES FROM ('ff000000-0000-0000-0000-000000000000') TO (MAXVALUE);
CREATE INDEX inbox_foreign_age ON inbox_foreign (processed_at);

-- Which service each consumer belongs to, and when it was running. What a broker brings again reaches back from that moment, not from
-- now: the entries of a consumer that was away are kept for as much longer, until it has been back for a day, in which the broker
-- brings again what it did not know to be acknowledged.
CREATE TABLE inbox_consumer (
    consumer   text        PRIMARY KEY,
    source     text        CHECK (source <> ''),                -- another service that uses the name by mistake is refused; NULL: any may
    beat_at    timestamptz DEFAULT clock_timestamp(),           -- when it was last seen running; NULL: it has never run
    active_at  timestamptz DEFAULT clock_timestamp(),           -- the retention of its entries counts from then on
    back_at    timestamptz,                                     -- since when it is back; NULL: it was not away
    stopped_at timestamptz,                                     -- when its last process ended in order; NULL: none has
    CHECK (CASE WHEN beat_at IS NULL THEN source IS NOT NULL AND num_nonnulls(active_at, back_at, stopped_at) = 0 ELSE active_at IS NOT NULL END)
);

-- The consumers that an operator has paused: no process starts a handler for them. A pause that has ended leaves its row:
-- counts of the broker that are older than the end are not used. The next pause replaces it.
CREATE TABLE inbox_pause (
    consumer  text        PRIMARY KEY, -- of a read model: without its generation
    paused_at timestamptz NOT NULL,
    paused_by text        NOT NULL CHECK (paused_by <> ''),
    reason    text        NOT NULL,
    ends_at   timestamptz              -- NULL: it lasts until somebody resumes the consumer
);

-- What each process says of a consumer that it runs, and of its connection to the broker. Which consumer runs is known by the minute
-- otherwise, and nobody would know that a process that runs receives nothing. A process removes its rows when it ends in order.
CREATE TABLE inbox_process (
    consumer    text        NOT NULL, -- of a read model: without its generation
    topic       text        NOT NULL,
    process     uuid        NOT NULL,
    name        text        NOT NULL, -- its machine and number, for people
    state       text        NOT NULL CHECK (state IN ('CONNECTED', 'PARTLY', 'AWAY', 'PAUSED', 'STORED')), -- STORED: there is no broker
    since       timestamptz NOT NULL, -- since when it is so
    unsettled   integer     NOT NULL, -- how many messages it has in hand
    progress_at timestamptz,          -- when it settled one last, or received the oldest of these; NULL: it has had none
    error       text        NOT NULL DEFAULT '', -- why it last had no connection
    failed_at   timestamptz,          -- when that was last so; NULL: never
    seen_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_until  timestamptz NOT NULL, -- a process that is silent for longer was killed, or has no database
    handled     bigint      NOT NULL DEFAULT 0, -- how many messages of the consumer it has handled since it began, at all topics
    failed      bigint      NOT NULL DEFAULT 0, -- how many tries of these failed, or made a dead letter
    max_attempts  integer,  -- after how many tries it makes a dead letter; NULL: there is no such limit
    give_up_after interval, -- for how long it tries a message that fails; NULL: without end
    deploy_wait   interval, -- for how long it keeps a message that its build does not know; NULL: without end
    PRIMARY KEY (consumer, topic, process)
) WITH (fillfactor = 50);

-- The topics of each consumer. Without a broker a process that delivers an event stores it for each consumer that is subscribed to its
-- topic, whichever process runs it. With a broker the row also has the latest figures that the broker reported for the subscription, so
-- that they are known after the last process has ended. It also shows whether a process handles the parked messages of the topic.
CREATE TABLE inbox_topic (
    topic        text    NOT NULL, -- '': parked messages of all topics
    consumer     text    NOT NULL, -- of a subscription: without the generation of a read model
    subscribed   boolean NOT NULL, -- the messages of the topic are for the consumer
    read_model   boolean NOT NULL DEFAULT false, -- the name of the consumer is that of a read model
    handled_at   timestamptz,      -- when a process that handles parked messages was last seen; NULL: never
    backlog      bigint,           -- how many messages wait at the broker; NULL: not known yet
    settled      bigint,           -- changes with each message that is settled there
    connections  integer,          -- how many consumers the broker has for it
    unattended   integer,          -- how many partitions have messages and no consumer
    missing      boolean NOT NULL DEFAULT false, -- the broker has no such subscription
    asked_at     timestamptz,      -- when it said all this
    stands_since timestamptz,      -- since when messages have waited and none was settled; NULL: that is not so
    error        text    NOT NULL DEFAULT '', -- why it did not say so later
    failed_at    timestamptz,      -- when it was last asked in vain
    many_since   timestamptz,      -- since when more than 1,000 messages have waited there; NULL: that is not so
    backlog_precision text NOT NULL DEFAULT 'EXACT' -- how far to trust the backlog: it may be estimated, or a lower bound
        CHECK (backlog_precision IN ('EXACT', 'ESTIMATED', 'AT LEAST')),
    oldest_at    timestamptz,      -- when the oldest message that waits was published; NULL: not known, or none waits
    PRIMARY KEY (topic, consumer)
) WITH (fillfactor = 50);

-- Messages that a consumer gave up, with all that is needed to handle them after all. These columns are a message; more follow below.
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
    PRIMARY KEY (message_key, consumer, tenant_id, source)
);

-- Places of messages in their keys. CACHE is 1, as of outbox_seq: with more, sessions would draw places in another order than they park.
CREATE SEQUENCE inbox_seq;

-- Messages that wait in the database and not at the broker: a message that failed, those behind it in its key, and all that a
-- durable consumer has stored. They run in the order of seq, key by key.
CREATE TABLE inbox_parked (
    LIKE inbox_dead INCLUDING DEFAULTS,
    key_lock      bigint      NOT NULL, -- hash of consumer and ordering key, or of the message's own key if it has no order
    seq           bigint      NOT NULL DEFAULT nextval('inbox_seq'),    -- drawn under the key's lock
    attempts      integer     NOT NULL DEFAULT 0 CHECK (attempts >= 0), -- tries that were begun
    unended       integer     NOT NULL DEFAULT 0 CHECK (unended >= 0),  -- of these, since one last ended with an error
    error_message text        NOT NULL DEFAULT '',                      -- of the last try
    parked_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    failing_since timestamptz, -- when it was parked because it failed, or first failed while it was parked; NULL: it has not
    unknown_since timestamptz, -- when a build first did not know its type or version, while it was parked; NULL: every build did
    fingerprint   text        NOT NULL DEFAULT '', -- of the place and the cause of error_message; '': it has not failed
    cause_since   timestamptz, -- since when each try has failed with this fingerprint; NULL: it has not failed
    failed_by     text        NOT NULL DEFAULT '', -- the process whose try failed last, with its version, for people; '': it has not failed
    PRIMARY KEY (consumer, key_lock, seq)
);
ALTER SEQUENCE inbox_seq OWNED BY inbox_parked.seq;
-- A copy never waits twice.
CREATE UNIQUE INDEX inbox_parked_message ON inbox_parked (message_key, consumer, tenant_id, source);
-- For the age of the oldest message of a consumer, among any number of keys.
CREATE INDEX inbox_parked_age ON inbox_parked (consumer, parked_at);
-- The failures of each cause, among any number of messages that wait behind them.
CREATE INDEX inbox_parked_cause ON inbox_parked (fingerprint, cause_since) WHERE fingerprint <> '';

-- The keys that do not flow: their later messages are parked. A key is here as long as messages of it are parked, or a dead letter
-- holds it. A transaction that changes this holds the key's lock.
CREATE TABLE inbox_key (
    consumer     text        NOT NULL,
    key_lock     bigint      NOT NULL,
    tenant_id    text        NOT NULL,
    ordering_key text,                      -- NULL: one message without order
    state        text        NOT NULL CHECK (state IN ('WAITING', 'FAILED', 'DEAD')), -- of its first message
    topic        text        NOT NULL DEFAULT '', -- of its first message: only a process that handles it takes the key; '': any may look
    due_at       timestamptz NOT NULL,      -- when that may run; while it has an owner: when another may take it over
    owner        uuid,                      -- the process that runs it, and did when it died if due_at is over
    since        timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (consumer, key_lock) INCLUDE (state), -- the statistics need no row
    CHECK (state <> 'DEAD' OR owner IS NULL)
) WITH (fillfactor = 70);
CREATE INDEX inbox_key_due ON inbox_key (consumer, topic, due_at) WHERE state <> 'DEAD';

-- Where a dead letter stood in its key, and what became of its tries.
ALTER TABLE inbox_dead
    ADD key_lock      bigint      NOT NULL, -- this and seq are as in inbox_parked: where the message stood, so that it can go back
    ADD seq           bigint      NOT NULL,
    ADD holds         boolean     NOT NULL DEFAULT false, -- the later messages of its key wait for it
    ADD attempts      integer     NOT NULL DEFAULT 1 CHECK (attempts > 0),
    ADD error_message text        NOT NULL,
    ADD died_at       timestamptz NOT NULL DEFAULT now(),
    ADD fingerprint   text        NOT NULL DEFAULT '', -- as in inbox_parked
    ADD failed_by     text        NOT NULL DEFAULT ''; -- as in inbox_parked
-- The order in which many are replayed: that of the locks of their keys, and of the messages of each key.
CREATE INDEX inbox_dead_key ON inbox_dead (key_lock, seq);
-- Lists of dead letters, by one property or none, each in the order of its pages. inbox_dead_order is that of a consumer.
CREATE INDEX inbox_dead_order ON inbox_dead (consumer, died_at, message_key);
CREATE INDEX inbox_dead_age ON inbox_dead (died_at, message_key);
CREATE INDEX inbox_dead_tenant ON inbox_dead (tenant_id, died_at, message_key);
CREATE INDEX inbox_dead_topic ON inbox_dead (topic, died_at, message_key);
CREATE INDEX inbox_dead_type ON inbox_dead (event_type, died_at, message_key);
CREATE INDEX inbox_dead_cause ON inbox_dead (fingerprint, died_at, message_key);

-- Tries of messages that are not parked, where another process may have to know them: the message failed, or it may have been running
-- when a process died. A row that was forgotten is removed after the retention.
CREATE TABLE inbox_attempt (
    message_key   uuid        NOT NULL,
    consumer      text        NOT NULL,
    tenant_id     text        NOT NULL,
    source        text        NOT NULL,
    attempts      integer     NOT NULL CHECK (attempts > 0),
    unended       integer     NOT NULL DEFAULT 0 CHECK (unended >= 0), -- as in inbox_parked
    error_message text        NOT NULL DEFAULT '',
    tried_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (message_key, consumer, tenant_id, source)
);
CREATE INDEX inbox_attempt_age ON inbox_attempt (tried_at);

-- The steps of a message that are done, with their results. They are removed when the message is settled.
CREATE TABLE inbox_step (
    message_key uuid        NOT NULL,
    consumer    text        NOT NULL,
    tenant_id   text        NOT NULL,
    source      text        NOT NULL,
    name        text        NOT NULL,
    result      json        NOT NULL,
    done_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (message_key, consumer, tenant_id, source, name)
);
CREATE INDEX inbox_step_age ON inbox_step (done_at);

-- Read models: consumers whose work can be thrown away and done again. Each time is a generation, which the inbox knows as a
-- consumer of its own: to it every message is new, and nothing has to be forgotten first.
CREATE TABLE inbox_read_model (
    name        text        PRIMARY KEY,
    generation  bigint      NOT NULL DEFAULT 0 CHECK (generation >= 0),
    consumer    text        NOT NULL GENERATED ALWAYS AS (CASE generation WHEN 0 THEN name ELSE name || '@' || generation::text END) STORED,
    state       text        NOT NULL DEFAULT 'LIVE' CHECK (state IN ('LIVE', 'REBUILDING')),
    checkpoint  text        NOT NULL DEFAULT '', -- how far the source was read, in its own words
    events      bigint      NOT NULL DEFAULT 0,  -- that it has handed over
    owner       uuid,                            -- the process that rebuilds it, and did when it died if the lease is over
    lease_until timestamptz NOT NULL DEFAULT '-infinity',
    started_at  timestamptz,                     -- of the latest generation
    updated_at  timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

-- Messages are entered by functions, because each statement of a function has a snapshot of its own: what it looks for after it has
-- waited for a lock must be seen as it is then. Where a result has few outcomes it is a number of rows, which are counted.
SELECT oncebox_create($text$
-- Takes the locks of keys, in the order in which they are given. After p_wait milliseconds of waiting for one of them it fails with
-- lock_not_available: the holder of the lock handles a message, or is a process that hangs.
CREATE FUNCTION inbox_lock_keys(p_locks bigint[], p_wait integer) RETURNS void
LANGUAGE plpgsql AS $f$
DECLARE
    before text := current_setting('lock_timeout');
BEGIN
    PERFORM set_config('lock_timeout', p_wait::text, true);
    PERFORM pg_advisory_xact_lock(hashint8extended(l, '{schema}.inbox'::regclass::oid::bigint)) FROM unnest(p_locks) l;
    PERFORM set_config('lock_timeout', before, true);
END $f$;

-- Enters a message. No row: it was entered before. One: it is to be handled. Two: others of its key wait before it.
-- It does not wait for ever: neither for the lock nor, if there is none, for a copy of the message, for which the index waits. It
-- overtakes no other session: a lock for which a session waits cannot be had without waiting.
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

-- A session that handles messages of a generation calls it first. The lock keeps a reset out until the end of the transaction, and
-- the look must be younger than the lock. No row: there is another generation by now. One: it is live. Two: it is being rebuilt.
CREATE FUNCTION inbox_gate(p_name text, p_generation bigint) RETURNS SETOF boolean
LANGUAGE plpgsql ROWS 1 AS $f$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended(p_name, '{schema}.inbox_read_model'::regclass::oid::bigint));
    RETURN QUERY SELECT true FROM {schema}.inbox_read_model p, generate_series(1, CASE p.state WHEN 'LIVE' THEN 1 ELSE 2 END)
    WHERE p.name = p_name AND p.generation = p_generation;
END $f$;

-- inbox_enter behind the gate. Three rows: a live message that has to wait, because its read model is being rebuilt. Four: there is
-- another generation by now, or it was replayed and nothing is being rebuilt any more.
CREATE FUNCTION inbox_enter_read_model(p_name text, p_generation bigint, p_replayed boolean,
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

-- Enters several messages, each of them once. Messages and locks come in an order that all sessions share; tenants and sources are
-- one value each if all messages have the same. A row is a message that was not entered before (with tenant and source unless all
-- have the same), or a key that does not flow, or, the last row, the id of the transaction.
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

-- Handlers that call outside run without a transaction. What a lock does for others, a lease does for them: one process runs one
-- message of a key, until it frees the lease or has been silent for as long as the lease lasts. Each try is another owner, so that
-- what an earlier try writes late is refused.
--
-- Takes the lease of a key for one message, and counts the try. p_seq is the place of a parked message, NULL for a message that has
-- just come; p_more is 0 if the try was counted before. The outcomes: taken; held, by another for this long; behind others of its key;
-- gone: it was settled or parked, or is not parked any more.
--
-- The lease comes before the looks: a session that settles a message frees its lease in the same commit, so what is seen here after
-- the lease was had is what became of the message. A parked message comes before the key's lock, as it does where it is settled; the
-- key's lock comes before the lease, as it does where messages are parked.
CREATE FUNCTION inbox_take_lease(p_message uuid, p_consumer text, p_tenant text, p_source text, p_lock bigint, p_owner uuid,
    p_ttl interval, p_seq bigint, p_more integer, OUT outcome text, OUT attempts integer, OUT unended integer, OUT rest interval)
LANGUAGE plpgsql AS $f$
DECLARE
    got boolean;
BEGIN
    attempts := 0;
    unended := 0;
    rest := '0';
    IF p_seq IS NOT NULL THEN
        PERFORM FROM {schema}.inbox_parked p WHERE p.consumer = p_consumer AND p.key_lock = p_lock AND p.seq = p_seq FOR UPDATE;
    END IF;
    PERFORM pg_advisory_xact_lock(hashint8extended(p_lock, '{schema}.inbox'::regclass::oid::bigint));
    INSERT INTO {schema}.oncebox_lease AS l (task, consumer, key_lock, owner, lease_until)
    VALUES ('inbox.message', p_consumer, p_lock, p_owner, clock_timestamp() + p_ttl)
    ON CONFLICT (task, consumer, key_lock) DO UPDATE SET owner = excluded.owner, lease_until = excluded.lease_until
    WHERE l.lease_until <= clock_timestamp();
    got := FOUND;
    IF p_seq IS NULL AND EXISTS (SELECT FROM {schema}.inbox i
        WHERE i.message_key = p_message AND i.consumer = p_consumer AND i.tenant_id = p_tenant AND i.source = p_source) THEN
        outcome := 'gone';
    ELSIF p_seq IS NULL AND EXISTS (SELECT FROM {schema}.inbox_key k WHERE k.consumer = p_consumer AND k.key_lock = p_lock) THEN
        outcome := 'behind';
    ELSIF NOT got THEN
        outcome := 'held';
        SELECT l.lease_until - clock_timestamp() INTO rest
        FROM {schema}.oncebox_lease l WHERE l.task = 'inbox.message' AND l.consumer = p_consumer AND l.key_lock = p_lock;
        rest := greatest(rest, '0'); -- also if it was freed meanwhile
    ELSIF p_seq IS NULL THEN
        outcome := 'taken';
        INSERT INTO {schema}.inbox_attempt AS a (message_key, consumer, tenant_id, source, attempts, unended)
        VALUES (p_message, p_consumer, p_tenant, p_source, p_more, p_more)
        ON CONFLICT (message_key, consumer, tenant_id, source) DO UPDATE
        SET attempts = a.attempts + p_more, unended = a.unended + p_more, tried_at = clock_timestamp()
        RETURNING a.attempts, a.unended INTO attempts, unended;
    ELSE
        UPDATE {schema}.inbox_parked p SET attempts = p.attempts + p_more, unended = p.unended + p_more
        WHERE p.consumer = p_consumer AND p.key_lock = p_lock AND p.seq = p_seq RETURNING p.attempts, p.unended INTO attempts, unended;
        outcome := CASE WHEN FOUND THEN 'taken' ELSE 'gone' END;
        attempts := coalesce(attempts, 0);
        unended := coalesce(unended, 0);
    END IF;
    IF got AND outcome <> 'taken' THEN
        DELETE FROM {schema}.oncebox_lease l WHERE l.task = 'inbox.message' AND l.consumer = p_consumer AND l.key_lock = p_lock AND l.owner = p_owner;
    END IF;
END $f$;
$text$);

-- The smallest UUIDv7 of a day.
CREATE FUNCTION inbox_day_bound(day date) RETURNS uuid LANGUAGE sql IMMUTABLE AS $f$
    SELECT (lpad(to_hex((extract(epoch FROM day::timestamp) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
$f$;

SELECT oncebox_create($text$
-- Makes the child of one day. false: it was there already, or so many rows of the day lie in the DEFAULT child that they stay there
-- until the retention removes them. wait is the lock_timeout, and the longest stall that waiting here can cause: while one session
-- waits for a lock on a table, all others wait behind it. 55P03: try again.
CREATE FUNCTION inbox_make_partition(day date, wait interval DEFAULT '50 ms') RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '50 ms' AS $f$
DECLARE
    parent CONSTANT regclass := '{schema}.inbox';
    rest CONSTANT regclass := '{schema}.inbox_default';
    child CONSTANT text := '{schema}.inbox_' || to_char(day, 'YYYYMMDD');
    lo CONSTANT uuid := {schema}.inbox_day_bound(day);
    hi CONSTANT uuid := {schema}.inbox_day_bound(day + 1);
    few CONSTANT integer := 10000;
    moves boolean;
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
        RAISE EXCEPTION 'inbox_make_partition: the tables % and inbox must belong to the same role', child
            USING ERRCODE = '42501', HINT = 'Rename or drop the first table, or change its owner.';
    END IF;
    moves := EXISTS (SELECT FROM {schema}.inbox_default WHERE message_key >= lo AND message_key < hi);
    IF moves THEN
        -- They come into the child when it is one: what is inserted into another table is not replicated as a row of the parent.
        EXECUTE format('CREATE UNLOGGED TABLE %s_moved AS SELECT * FROM %s WHERE message_key >= %L AND message_key < %L', child, rest, lo, hi);
        DELETE FROM {schema}.inbox_default WHERE message_key >= lo AND message_key < hi;
    END IF;
    EXECUTE format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%L) TO (%L)', parent, child, lo, hi);
    IF moves THEN
        EXECUTE format('INSERT INTO %s SELECT * FROM %1$s_moved', child);
        EXECUTE format('DROP TABLE %s_moved', child);
    END IF;
    RETURN true;
END $f$;

-- Empties the child of one day, unless a message of it was handled within the retention: a consumer that was days behind needs its
-- entries for as long as any other, counted from when it ran last. true: it is empty. It refuses to touch the last 24 hours,
-- whatever day it is given. To empty a child it waits only for the handlers of its own messages, and it can be dropped later: every
-- handler that runs holds a lock of inbox, without which no child can be dropped.
-- It looks twice: without a lock first, because most children that are kept are kept for long, and then with a lock that keeps
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
        RAISE EXCEPTION 'inbox_empty_partition: the day % must have ended more than 24 hours ago', day USING ERRCODE = '22023';
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

-- Drops the child of one day if it is empty. false: it is not, or there is none. It refuses to touch the last 24 hours, too.
CREATE FUNCTION inbox_drop_partition(day date, wait interval DEFAULT '50 ms') RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '50 ms' AS $f$
DECLARE
    parent CONSTANT regclass := '{schema}.inbox';
    child CONSTANT text := '{schema}.inbox_' || to_char(day, 'YYYYMMDD');
    used boolean;
BEGIN
    IF NOT isfinite(day) OR (day + 1)::timestamp AT TIME ZONE 'UTC' > clock_timestamp() - interval '24 hours' THEN
        RAISE EXCEPTION 'inbox_drop_partition: the day % must have ended more than 24 hours ago', day USING ERRCODE = '22023';
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
REVOKE ALL ON FUNCTION inbox_make_partition(date, interval), inbox_empty_partition(date, interval, interval),
    inbox_drop_partition(date, interval) FROM PUBLIC;

-- What psql shows of them (\dt+).
COMMENT ON TABLE inbox IS 'Which consumer has entered which message, in partitions by the day of the message.';
COMMENT ON TABLE inbox_default IS 'Entries of inbox of days without a partition.';
COMMENT ON TABLE inbox_foreign IS 'Entries of inbox whose message has an id without a day, as other systems give.';
COMMENT ON TABLE inbox_consumer IS 'Which service each consumer belongs to, and when it ran last.';
COMMENT ON TABLE inbox_topic IS 'The topics of each consumer: whether it is subscribed, what waits at the broker, and when a process last handled what is parked.';
COMMENT ON TABLE inbox_pause IS 'The consumers that an operator has paused: who, when, why and until when.';
COMMENT ON TABLE inbox_process IS 'Which process runs a consumer, and how it is connected to the broker.';
COMMENT ON TABLE inbox_parked IS 'Messages that wait in the database: a message that failed, and the messages behind it.';
COMMENT ON TABLE inbox_key IS 'The ordering keys whose messages wait, when each may run, and which process runs it.';
COMMENT ON TABLE inbox_dead IS 'Messages that consumers gave up: the dead letters of the inbox.';
COMMENT ON TABLE inbox_attempt IS 'How often messages that do not wait in the database were tried.';
COMMENT ON TABLE inbox_step IS 'The steps that are done of messages that run outside a transaction, with their results.';
COMMENT ON TABLE inbox_read_model IS 'The read models, each with its generation and the progress of its rebuild.';

INSERT INTO oncebox_migrations (name) VALUES ('20261121000002_inbox.up.sql');
