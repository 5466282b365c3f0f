-- What the files of all table families need. Apply it before them.
--
-- No file names a schema: the tables go into the first schema of the search_path.

-- The files that were applied. Each file enters itself at its end, whatever tool applies it.
CREATE TABLE oncebox_migrations (
    name       text        PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- Who alone may do something, and until when: a process that reads the statistics of all, or that runs a message outside of a
-- transaction. A process that is silent loses it at lease_until.
CREATE TABLE oncebox_lease (
    task        text        NOT NULL, -- such as outbox.stats
    consumer    text        NOT NULL DEFAULT '', -- this and the next one are those of a message
    key_lock    bigint      NOT NULL DEFAULT 0,
    owner       uuid        NOT NULL,
    lease_until timestamptz NOT NULL,
    PRIMARY KEY (task, consumer, key_lock)
) WITH (fillfactor = 50);

-- What all processes must agree on, in one row. Other files add their columns to it.
CREATE TABLE oncebox_settings (
    only_one     boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    -- Which installation of its service this database is, so that a second one with the same name is noticed where both meet: at the
    -- broker. The first process sets it, and not this file: databases that are copies of a fresh one are different installations.
    installation uuid
);
INSERT INTO oncebox_settings DEFAULT VALUES;

-- What operators did by hand, and what a retention removed. The statement that changes the rows writes the entry, too.
CREATE TABLE oncebox_audit (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    part       text        NOT NULL CHECK (part <> ''),  -- the family of tables in which it was done
    actor      text        NOT NULL CHECK (actor <> ''),
    action     text        NOT NULL,            -- replay, discard, expire, pause and others, see package operator
    reason     text        NOT NULL DEFAULT '',
    tenant_id  text        NOT NULL,            -- '': it is about no tenant
    event_id   uuid,                            -- of a message: its message key; NULL: it is about no single event
    events     bigint      NOT NULL DEFAULT 1 CHECK (events > 0), -- for how many events or messages it stands
    topic      text        NOT NULL DEFAULT '',
    event_type text        NOT NULL DEFAULT '',
    consumer   text        NOT NULL DEFAULT '', -- this and the next two are those of a message
    source     text        NOT NULL DEFAULT '',
    message_id text        NOT NULL DEFAULT '',
    key_hash   bytea,                           -- this and the next two are those of a step of a request
    step       text        NOT NULL DEFAULT '',
    epoch      integer     NOT NULL DEFAULT 0,  -- of the claim under which the step was begun
    fingerprint text       NOT NULL DEFAULT ''  -- of a group of failures
);
-- The pages of one part, and what has outlived its retention.
CREATE INDEX oncebox_audit_part ON oncebox_audit (part, id);
CREATE INDEX oncebox_audit_age ON oncebox_audit (part, at);
-- What was done to one event, at one consumer, to one request.
CREATE INDEX oncebox_audit_event ON oncebox_audit (event_id, id) WHERE event_id IS NOT NULL;
CREATE INDEX oncebox_audit_consumer ON oncebox_audit (consumer, id) WHERE consumer <> '';
CREATE INDEX oncebox_audit_key ON oncebox_audit (key_hash, id) WHERE key_hash IS NOT NULL;
CREATE INDEX oncebox_audit_failure ON oncebox_audit (fingerprint, id) WHERE fingerprint <> '';

-- What operators said about failures with one fingerprint, of messages that are tried again and of dead letters. A failure itself writes nothing here:
-- all messages that fail for one cause would wait for the lock of one row.
CREATE TABLE oncebox_failure (
    fingerprint   text        PRIMARY KEY CHECK (fingerprint <> ''),
    consumer      text        NOT NULL DEFAULT '', -- this and the next three are for the time when no failure is left: '': the relay
    topic         text        NOT NULL DEFAULT '',
    event_type    text        NOT NULL DEFAULT '',
    cause         text        NOT NULL DEFAULT '', -- the text that the errors share
    note          text        NOT NULL DEFAULT '',
    noted_by      text        NOT NULL DEFAULT '',
    noted_at      timestamptz,                     -- NULL: there was never a note
    archived_by   text        NOT NULL DEFAULT '',
    archived_at   timestamptz,                     -- NULL: it is not archived
    archived_why  text        NOT NULL DEFAULT '',
    -- The time of the latest failure that the operator could see. A later one takes the group out of the archive.
    archived_upto timestamptz,
    CHECK ((archived_at IS NULL) = (archived_upto IS NULL))
);

-- How the gauges of the last 24 hours went. The process that reads them for the metrics enters what it read into the row of the minute. Rows of
-- minutes become one row for ten minutes after two hours, and are removed after 24 hours, so a part has at most 300 rows, and each consumer as many.
-- In a time without a row no process read the gauges.
CREATE TABLE oncebox_history (
    part     text             NOT NULL CHECK (part <> ''),  -- as in oncebox_audit
    at       timestamptz      NOT NULL,                     -- when the row begins
    consumer text             NOT NULL DEFAULT '',          -- of a row about a consumer
    minutes  smallint         NOT NULL DEFAULT 1 CHECK (minutes IN (1, 10)), -- how long it lasts
    -- The highest reading of the time; NULL: it was not known.
    waiting  bigint,                                        -- events to be published; messages of a consumer at the broker
    parked   bigint,                                        -- messages of a consumer in the database
    failing  bigint,                                        -- refused events; keys of a consumer whose first message failed
    dead     bigint,                                        -- dead letters
    oldest   double precision,                              -- the age in seconds of the oldest event, or parked message, that waits
    -- Sums over the seconds in counted.
    came     bigint           NOT NULL DEFAULT 0,           -- events that were stored
    went     bigint           NOT NULL DEFAULT 0,           -- events that were published; messages that a consumer handled
    failed   bigint           NOT NULL DEFAULT 0,           -- tries of a consumer that failed
    counted  double precision NOT NULL DEFAULT 0,
    PRIMARY KEY (part, at, consumer)
) WITH (fillfactor = 70);

-- The processes that run parts of the service, as they describe themselves. A process removes its row when it ends in order.
CREATE TABLE oncebox_process (
    process    uuid        PRIMARY KEY,
    name       text        NOT NULL, -- its machine and number, for people
    host       text        NOT NULL,
    service    text        NOT NULL,
    version    text        NOT NULL, -- of the program, or the revision that it was built from; '': not known, as library
    library    text        NOT NULL, -- the version of oncebox
    parts      text        NOT NULL, -- relay, consumers, cleaner, with a space between them
    relay      text        NOT NULL, -- its name as an owner of lanes; '': it runs no relay
    reporter   uuid,                 -- its id in the reports about its consumers; NULL: it runs none
    broker     text        NOT NULL, -- the kind of its broker; '': it has none
    began_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_until timestamptz NOT NULL -- a process that is silent for longer was killed, or has no database
) WITH (fillfactor = 50);

-- Makes functions whose text names the schema: each {schema} in the template becomes the first schema of the search_path, as an
-- identifier. Where {schema} begins a literal, quotes within the name are doubled.
--
-- Some of these functions act with the rights of the owner of the tables. Three things keep a caller from acting as the
-- owner: the functions are revoked from PUBLIC; they search pg_catalog only and qualify our own names, because a function or an
-- operator that somebody planted in another schema is preferred wherever its arguments fit better; and they refuse a table that
-- another role made in advance, because it may have triggers. pg_temp is named because it would come first otherwise.
CREATE FUNCTION oncebox_create(template text) RETURNS void LANGUAGE plpgsql AS $f$
DECLARE
    here CONSTANT text := quote_ident(current_schema()::text);
BEGIN
    EXECUTE replace(replace(template, '''{schema}', '''' || replace(here, '''', '''''')), '{schema}', here);
END $f$;

-- What psql shows of them (\dt+).
COMMENT ON TABLE oncebox_migrations IS 'The files of the migrations that were applied.';
COMMENT ON TABLE oncebox_lease IS 'Who alone may do something, and until when: read statistics, or run a message outside a transaction.';
COMMENT ON TABLE oncebox_settings IS 'What all processes must agree on: which database this is, lanes and hash, and how long published events are kept.';
COMMENT ON TABLE oncebox_failure IS 'What operators said about failures with one cause: a note, and whether they are archived.';
COMMENT ON TABLE oncebox_history IS 'How the gauges of the last 24 hours went: a row for each minute, and for each ten minutes after two hours.';
COMMENT ON TABLE oncebox_process IS 'Which processes of the service are alive, what each runs, and in which version.';
COMMENT ON TABLE oncebox_audit IS 'What operators did by hand and what a retention removed: who, when and why.';

INSERT INTO oncebox_migrations (name) VALUES ('20261121000000_oncebox.up.sql');
