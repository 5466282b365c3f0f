-- Fails the completion of a key that somebody else has completed meanwhile. A constraint would do it too, and put the row, with
-- the answer that is stored in it, into the error and into the server's log.
CREATE FUNCTION idempotency_taken() RETURNS text
LANGUAGE plpgsql AS $f$
BEGIN
    RAISE EXCEPTION 'oncebox: the idempotency key was completed by another request meanwhile' USING ERRCODE = 'OB001',
        HINT = 'Nothing is wrong: the work of this one is undone, and its client gets the answer of the other one.';
END $f$;

INSERT INTO oncebox_migrations (name) VALUES ('20261121000025_idempotency_taken.up.sql');
