-- What handlers that call outside have done already, so that whoever takes their request over does not do it again. The steps
-- go with their key.
CREATE TABLE idempotency_step (
    key_hash bytea       NOT NULL REFERENCES idempotency_keys ON DELETE CASCADE,
    name     text        NOT NULL CHECK (name <> ''),
    epoch    integer     NOT NULL, -- of the claim under which it was begun
    result   json,                 -- NULL: it was begun, and nobody knows what became of it
    begun_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (key_hash, name)
);

-- For operators, who look for what is open.
CREATE INDEX idempotency_step_open ON idempotency_step (begun_at) WHERE result IS NULL;

SELECT oncebox_create($text$
-- Claims a key for p_owner, and returns its row where that cannot be: answered, used for another request, claimed by somebody
-- whose lease lasts, or unknown. A key whose last owner left an open step becomes unknown, unless the caller is to find out.
--
-- Each statement has a snapshot of its own under READ COMMITTED. The first one spares replays the lock of the row; the INSERT
-- looks again, at the row as it is by then.
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

-- Writes down what became of a step that was begun under a certain claim: its result, or NULL if it was not done. When no step
-- of the key is open any more, the key expires as others do, and the next request with it goes on. Those who do not hold the
-- claim are refused while its lease lasts.
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
        UPDATE {schema}.idempotency_step s SET result = p_result
        WHERE s.key_hash = p_hash AND s.name = p_name AND s.epoch = p_epoch AND s.result IS NULL;
    END IF;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF NOT EXISTS (SELECT FROM {schema}.idempotency_step s WHERE s.key_hash = p_hash AND s.result IS NULL) THEN
        UPDATE {schema}.idempotency_keys k SET state = 'claimed', expires_at = CASE WHEN p_ttl < 0 THEN 'infinity'
            ELSE greatest(clock_timestamp() + make_interval(secs => p_ttl), k.locked_until) END
        WHERE k.key_hash = p_hash AND k.state <> 'completed';
    END IF;
    RETURN true;
END $f$;
$text$);

INSERT INTO oncebox_migrations (name) VALUES ('20261121000019_idempotency_lease.up.sql');
