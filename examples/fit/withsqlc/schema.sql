CREATE TABLE accounts (id text PRIMARY KEY, cents bigint NOT NULL CHECK (cents >= 0), version bigint NOT NULL);
