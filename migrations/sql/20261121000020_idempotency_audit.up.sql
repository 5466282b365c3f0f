-- What operators said became of steps of which nobody knew whether they were done. Written in the same statement as the deed.
CREATE TABLE idempotency_audit (
    id        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor     text        NOT NULL CHECK (actor <> ''),
    action    text        NOT NULL, -- done, not_done
    tenant_id text        NOT NULL,
    key_hash  bytea       NOT NULL,
    step      text        NOT NULL,
    epoch     integer     NOT NULL, -- of the claim under which the step was begun
    reason    text        NOT NULL DEFAULT ''
);
CREATE INDEX idempotency_audit_key ON idempotency_audit (key_hash, id);

-- Nothing calls it: the lock and the look-up are two statements of the program, which share a round trip with BEGIN.
DROP FUNCTION idempotency_begin(bytea);

INSERT INTO oncebox_migrations (name) VALUES ('20261121000020_idempotency_audit.up.sql');
