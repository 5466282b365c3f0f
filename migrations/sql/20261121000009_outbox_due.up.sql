-- Rows that become due at the same time, a million of them if an operator or NotBefore says so, are told apart: whoever goes
-- past those of a paused topic remembers the last one.
DROP INDEX outbox_held_due;
CREATE INDEX outbox_held_due ON outbox_held (lane, retry_after, seq);

INSERT INTO oncebox_migrations (name) VALUES ('20261121000009_outbox_due.up.sql');
