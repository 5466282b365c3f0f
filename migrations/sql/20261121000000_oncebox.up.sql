-- What the files of all table families need. Apply it before them.
--
-- No file names a schema: the tables go into the first schema of the search_path.

-- The files that were applied. Each file enters itself at its end, whatever tool applies it.
CREATE TABLE oncebox_migrations (
    name       text        PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- Which process does what only one should do at a time, such as reading statistics. A process that is silent loses it at lease_until.
CREATE TABLE oncebox_leader (
    name        text        PRIMARY KEY,
    owner       uuid        NOT NULL,
    lease_until timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Which installation of its service this database is, so that a second one with the same name is noticed where both meet: at the broker. The
-- first process makes the row, and not this file: a replica that is made of it has none yet, and gets that of its origin.
CREATE TABLE oncebox_installation (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    id  uuid    NOT NULL
);

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

INSERT INTO oncebox_migrations (name) VALUES ('20261121000000_oncebox.up.sql');
