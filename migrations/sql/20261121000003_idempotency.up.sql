-- Idempotency keys: the answer that every retry of a request gets.
-- Needs 20261121000000_oncebox.up.sql and no other file.

-- A row is written in the transaction of the work that it answers, and is never changed once it is completed.
--
-- Its CHECKs are the states, and what each state needs. PostgreSQL reads the text of each CHECK anew for every statement that
-- writes a row: with CHECKs of the single columns they would be half of the cost of the INSERT.
CREATE TABLE idempotency_keys (
    expires_at      timestamptz NOT NULL, -- from then on the key is a new one, whether or not the row was purged
    created_at      timestamptz NOT NULL DEFAULT now(),
    completed_at    timestamptz,
    -- A claim that outlives its transaction, for work that no transaction can undo. The lease and the expiry are different things:
    -- one says how long to wait for the owner, the other how long to remember the answer.
    locked_until    timestamptz,
    owner           uuid,                           -- of the claim; NULL: it was released, or there is none
    epoch           integer     NOT NULL DEFAULT 0, -- counts owners; part of every fence
    status          smallint,                       -- of the answer, with headers and body; NULL: there is none yet
    key_hash        bytea       PRIMARY KEY,        -- of tenant, principal, method, path and key
    tenant_id       text        NOT NULL,
    principal_hash  bytea,                          -- whose answer it is, so that it can be erased; NULL: anonymous
    state           text        NOT NULL CHECK (state IN ('claimed', 'completed', 'unknown')),
    fingerprint_tag text        NOT NULL,           -- how the fingerprint was made; compared only if equal
    fingerprint     bytea       NOT NULL,
    headers         json,
    omitted         text,                           -- why the body was not kept; the answer is a tombstone then
    body            bytea,
    request         text,                           -- method and path, for the operator who has to find out what became of a step; only while its outcome is open
    caller          text,                           -- who asked, as the service names him to operators; as long as request
    CONSTRAINT idempotency_keys_answer_or_lease CHECK (
        (status IS NOT NULL AND headers IS NOT NULL AND (body IS NULL) = (omitted IS NOT NULL)) = (locked_until IS NULL)
        AND (locked_until IS NULL) = (state = 'completed'))
) WITH (autovacuum_vacuum_scale_factor = 0.02);
-- For the purge.
CREATE INDEX idempotency_keys_expiry ON idempotency_keys (expires_at);
-- For operators: what is being worked on under a lease, or waits for a decision. Keys that are committed with their answer are never in it.
CREATE INDEX idempotency_keys_open ON idempotency_keys (created_at) WHERE state <> 'completed';

-- What handlers that call outside have done already, so that a process that takes their request over does not do it again. The
-- steps are removed with their key.
CREATE TABLE idempotency_step (
    key_hash bytea       NOT NULL REFERENCES idempotency_keys ON DELETE CASCADE,
    name     text        NOT NULL CHECK (name <> ''),
    epoch    integer     NOT NULL, -- of the claim under which it was begun
    result   json,                 -- NULL: it was begun, and nobody knows what became of it
    begun_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    label    text,                 -- what it is about, for the operator who has to find out what became of it; only while its outcome is open
    PRIMARY KEY (key_hash, name)
);
-- For operators: they look for open steps.
CREATE INDEX idempotency_step_open ON idempotency_step (begun_at) WHERE result IS NULL;

-- Fails the completion of a key that another request has completed meanwhile. A constraint would do it too, and put the row, with
-- the answer that is stored in it, into the error and into the server's log.
CREATE FUNCTION idempotency_taken() RETURNS text
LANGUAGE plpgsql AS $f$
BEGIN
    RAISE EXCEPTION 'oncebox: another request with the same idempotency key was completed first' USING ERRCODE = 'OB001',
        HINT = 'This is no fault: the work of this request is rolled back, and its client gets the answer of the other request.';
END $f$;

SELECT oncebox_create($text$
-- Claims a key for p_owner, and returns its row where that cannot be: answered, used for another request, claimed by another owner
-- whose lease lasts, or unknown. A key whose last owner left an open step becomes unknown, unless the caller is to find out.
--
-- Each statement has a snapshot of its own under READ COMMITTED. The first one spares replays the lock of the row; the INSERT looks
-- again, at the row as it is by then.
CREATE FUNCTION idempotency_claim(p_hash bytea, p_tenant text, p_principal bytea, p_tag text, p_fingerprint bytea, p_owner uuid, p_lease interval,
    p_ttl float8, p_recover boolean, OUT claimed boolean, OUT epoch integer, OUT rest float8, OUT state text,
    OUT fingerprint_tag text, OUT fingerprint bytea, OUT status smallint, OUT headers json, OUT omitted text, OUT body bytea)
LANGUAGE plpgsql AS $f$
BEGIN
    claimed := false;
    LOOP
        SELECT k.state, k.fingerprint_tag, k.fingerprint, k.status, k.headers, k.omitted, k.body,
            extract(epoch FROM k.locked_until - clock_timestamp())::float8
        INTO state, fingerprint_tag, fingerprint, status, headers, omitted, body, rest
        FROM {schema}.idempotency_keys k WHERE k.key_hash = p_hash AND k.expires_at > clock_timestamp();
        IF state = 'completed' OR state = 'claimed' AND rest > 0 OR state = 'unknown' AND NOT p_recover
            OR fingerprint_tag = p_tag AND fingerprint <> p_fingerprint THEN
            RETURN;
        END IF;
        IF state IS NULL THEN
            DELETE FROM {schema}.idempotency_keys k WHERE k.key_hash = p_hash AND k.expires_at <= clock_timestamp();
        END IF;
        -- It is remembered for as long as it is claimed, however short the TTL.
        INSERT INTO {schema}.idempotency_keys AS k (key_hash, tenant_id, principal_hash, state, fingerprint_tag, fingerprint, expires_at,
            locked_until, owner, epoch)
        SELECT p_hash, p_tenant, p_principal, 'claimed', p_tag, p_fingerprint,
            CASE WHEN p_ttl < 0 THEN 'infinity' ELSE greatest(t.now + make_interval(secs => p_ttl), t.now + p_lease) END,
            t.now + p_lease, p_owner, 1
        FROM (SELECT clock_timestamp() AS now) t
        ON CONFLICT (key_hash) DO UPDATE SET
            state = excluded.state, fingerprint_tag = excluded.fingerprint_tag, fingerprint = excluded.fingerprint,
            expires_at = greatest(k.expires_at, excluded.expires_at), locked_until = excluded.locked_until,
            owner = excluded.owner, epoch = k.epoch + 1
        WHERE k.expires_at > clock_timestamp() AND (k.fingerprint_tag <> p_tag OR k.fingerprint = p_fingerprint)
            AND (k.state = 'claimed' AND k.locked_until <= clock_timestamp() OR k.state = 'unknown' AND p_recover)
        RETURNING k.epoch INTO epoch;
        EXIT WHEN FOUND;
    END LOOP;
    claimed := true;
    IF NOT p_recover AND EXISTS (SELECT FROM {schema}.idempotency_step s WHERE s.key_hash = p_hash AND s.result IS NULL) THEN
        UPDATE {schema}.idempotency_keys k SET state = 'unknown', locked_until = clock_timestamp() WHERE k.key_hash = p_hash;
        claimed := false;
        state := 'unknown';
    END IF;
END $f$;

-- Writes down what became of a step that was begun under a certain claim: its result, or NULL if it was not done. When no step of
-- the key is open any more, the key expires as others do, and the next request with it goes on. A caller that does not hold the
-- claim is refused while its lease lasts.
CREATE FUNCTION idempotency_settle_step(p_hash bytea, p_name text, p_epoch integer, p_result json, p_ttl float8, p_mine boolean)
RETURNS boolean
LANGUAGE plpgsql AS $f$
BEGIN
    PERFORM FROM {schema}.idempotency_keys k
    WHERE k.key_hash = p_hash AND (p_mine OR k.state = 'unknown' OR k.locked_until <= clock_timestamp()) FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF p_result IS NULL THEN
        DELETE FROM {schema}.idempotency_step s WHERE s.key_hash = p_hash AND s.name = p_name AND s.epoch = p_epoch AND s.result IS NULL;
    ELSE
        UPDATE {schema}.idempotency_step s SET result = p_result, label = NULL
        WHERE s.key_hash = p_hash AND s.name = p_name AND s.epoch = p_epoch AND s.result IS NULL;
    END IF;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF NOT EXISTS (SELECT FROM {schema}.idempotency_step s WHERE s.key_hash = p_hash AND s.result IS NULL) THEN
        UPDATE {schema}.idempotency_keys k SET state = 'claimed', request = NULL, caller = NULL, expires_at = CASE WHEN p_ttl < 0 THEN 'infinity'
            ELSE greatest(clock_timestamp() + make_interval(secs => p_ttl), k.locked_until) END
        WHERE k.key_hash = p_hash AND k.state <> 'completed';
    END IF;
    RETURN true;
END $f$;
$text$);

-- What psql shows of them (\dt+).
COMMENT ON TABLE idempotency_keys IS 'The answers to requests, and which process works on a request under a lease.';
COMMENT ON TABLE idempotency_step IS 'The steps of such requests: their results, and steps whose outcome is unknown.';

INSERT INTO oncebox_migrations (name) VALUES ('20261121000003_idempotency.up.sql');
