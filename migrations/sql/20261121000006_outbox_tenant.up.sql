-- The tenants that have committed an event, entered in the same transaction, until there are 1000: a reader sees the
-- tenants of all rows that it could have seen before, or that they are many. And which group of lanes, and thus of
-- projectors, serves those that were moved.
CREATE TABLE outbox_tenant (
    tenant_id text        PRIMARY KEY,
    grp       smallint    NOT NULL DEFAULT 0 CHECK (grp >= 0),
    since     timestamptz NOT NULL DEFAULT clock_timestamp() -- in this group
);

-- Counts moves of tenants. What is asked of a sequence is answered as of now and not as of the asker's snapshot: a flush
-- that sees no number here knows that nobody ever moved, and spares itself the function below.
CREATE SEQUENCE outbox_moves AS bigint;

SELECT oncebox_create($text$
-- The first lane of a tenant's group. It must be called by who holds the locks of the ordering keys, which whoever moves
-- a tenant takes as well: then no move is under way. VOLATILE gives the look at outbox_tenant a snapshot of its own, taken
-- after the locks. Above READ COMMITTED there is only the transaction's; there the row lock fails with 40001 if somebody
-- moved after that was taken, because each move updates the row. See outbox_make_partition for the owner's rights.
CREATE FUNCTION outbox_first_lane(tenant text) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
    found integer;
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        PERFORM FROM {schema}.outbox_layout FOR SHARE;
    END IF;
    SELECT t.grp * l.lanes INTO found FROM {schema}.outbox_tenant t, {schema}.outbox_layout l WHERE t.tenant_id = tenant;
    RETURN coalesce(found, 0);
END $f$;
$text$);
REVOKE ALL ON FUNCTION outbox_first_lane(text) FROM PUBLIC;

-- Whose database this is, in the words of outbox.Config.Deployment. A copy of it that wakes up elsewhere carries the
-- name along, and projectors of another name leave it alone. NULL: nobody's.
ALTER TABLE outbox_layout ADD COLUMN deployment text CHECK (deployment <> '');

INSERT INTO oncebox_migrations (name) VALUES ('20261121000006_outbox_tenant.up.sql');
