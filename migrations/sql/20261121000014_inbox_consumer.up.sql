-- When each consumer ran last. What a broker brings again reaches back from that moment, not from now: the entries of a consumer
-- that was away are kept for as much longer.
CREATE TABLE inbox_consumer (
    consumer  text        PRIMARY KEY,
    active_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Which consumers handle a topic, where there is no broker that knows: a process that delivers stores messages for those that it does not
-- have itself.
CREATE TABLE inbox_subscription (
    topic      text    NOT NULL,
    consumer   text    NOT NULL,
    projection boolean NOT NULL, -- its name is that of a projection
    PRIMARY KEY (topic, consumer)
);

INSERT INTO oncebox_migrations (name) VALUES ('20261121000014_inbox_consumer.up.sql');
