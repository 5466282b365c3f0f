-- When each consumer ran last. What a broker brings again reaches back from that moment, not from now: the entries of a consumer
-- that was away are kept for as much longer.
CREATE TABLE inbox_consumer (
    consumer  text        PRIMARY KEY,
    active_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

INSERT INTO oncebox_migrations (name) VALUES ('20261121000014_inbox_consumer.up.sql');
