-- Idempotency keys: the answer that every retry of a request gets. A row is written in the transaction of the work that
-- it answers, and is never changed once it is completed.
CREATE TABLE idempotency_keys (
    expires_at      timestamptz NOT NULL, -- from then on the key is a new one, whether or not the row was purged
    created_at      timestamptz NOT NULL DEFAULT now(),
    completed_at    timestamptz,
    -- A claim that outlives its transaction, for work that no transaction can undo. The lease and the expiry are
    -- different things: one says how long to wait for the owner, the other how long to remember the answer.
    locked_until    timestamptz,
    owner           uuid,
    epoch           integer     NOT NULL DEFAULT 0 CHECK (epoch >= 0), -- counts owners; part of every fence
    status          smallint             CHECK (status BETWEEN 200 AND 599),
    key_hash        bytea       PRIMARY KEY CHECK (octet_length(key_hash) = 32), -- of tenant, principal, method, path and key
    tenant_id       text        NOT NULL CHECK (tenant_id <> ''),
    principal_hash  bytea,                                             -- whose answer it is, so that it can be erased; NULL: anonymous
    state           text        NOT NULL CHECK (state IN ('claimed', 'completed', 'unknown')),
    fingerprint_tag text        NOT NULL CHECK (fingerprint_tag <> ''), -- how the fingerprint was made; compared only if equal
    fingerprint     bytea       NOT NULL CHECK (octet_length(fingerprint) = 32),
    headers         json                 CHECK (json_typeof(headers) = 'object'),
    omitted         text                 CHECK (omitted <> ''), -- why the body was not kept; the answer is a tombstone then
    body            bytea,
    CONSTRAINT completed_is_whole CHECK (state <> 'completed' OR (status IS NOT NULL AND headers IS NOT NULL
        AND completed_at IS NOT NULL AND (body IS NULL) = (omitted IS NOT NULL) AND locked_until IS NULL)),
    CONSTRAINT only_completed_answers CHECK (state = 'completed' OR (status IS NULL AND headers IS NULL
        AND completed_at IS NULL AND body IS NULL AND omitted IS NULL)),
    CONSTRAINT claim_has_owner CHECK (state <> 'claimed' OR (owner IS NOT NULL AND locked_until IS NOT NULL))
) WITH (autovacuum_vacuum_scale_factor = 0.02);

-- For the purge.
CREATE INDEX idempotency_keys_expiry ON idempotency_keys (expires_at);

-- Locks a key to the end of the transaction, without waiting, and then reads it: locked false means that somebody else
-- has it, state NULL that it is new. The two are statements of their own, within one round trip: a VOLATILE function
-- takes a new snapshot for each of its statements under READ COMMITTED, so that the look-up sees what the previous
-- holder of the lock committed. In a single statement the snapshot would be older than the lock.
-- The oid of the table keeps the locks of different schemas apart.
CREATE FUNCTION idempotency_begin(hash bytea, OUT locked boolean, OUT state text, OUT fingerprint_tag text,
    OUT fingerprint bytea, OUT status smallint, OUT headers json, OUT omitted text, OUT body bytea)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $f$
BEGIN
    locked := pg_try_advisory_xact_lock(hashtextextended(encode(hash, 'hex'), 'idempotency_keys'::regclass::oid::bigint));
    IF locked THEN
        SELECT k.state, k.fingerprint_tag, k.fingerprint, k.status, k.headers, k.omitted, k.body
        INTO state, fingerprint_tag, fingerprint, status, headers, omitted, body
        FROM idempotency_keys k WHERE k.key_hash = hash AND k.expires_at > clock_timestamp();
    END IF;
END $f$;

INSERT INTO oncebox_migrations (name) VALUES ('20261121000003_idempotency.up.sql');
