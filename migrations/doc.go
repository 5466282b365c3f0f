// Package migrations holds the tables as numbered SQL files and brings a database up to them.
//
// The files name no schema: [Up] runs them with the search_path set to the one that is configured, and so can psql or
// any other tool that applies the files of [FS] in the order of their names. Each file enters itself in the table
// oncebox_migrations, so that [Up] and [Verify] know of it whoever applied it.
//
// # Guarantees
//
// [Up] is one transaction under an advisory lock: it is applied wholly or not at all, however many processes start at
// once, and does nothing, and needs no more than SELECT on oncebox_migrations, when the database is up to date. Files
// that were released never change. [Up] and [Verify] compare the names of files and nothing else: a database that was made from
// an earlier text of a file counts as up to date. Before the first release files do change; make such a database anew.
//
// # Roles
//
// The role that runs [Up] owns the tables. A service may run as it; one that does not needs, on top of USAGE on the
// schema:
//
//	-- whoever commits events
//	GRANT SELECT, INSERT ON outbox TO app;
//	GRANT SELECT ON outbox_layout, oncebox_migrations TO app;
//	GRANT SELECT, INSERT ON outbox_tenant TO app;
//	GRANT SELECT, INSERT, UPDATE ON outbox_dedup TO app; -- if it uses dedup keys
//	GRANT USAGE ON SEQUENCE outbox_seq, outbox_moves TO app;
//	GRANT EXECUTE ON FUNCTION outbox_first_lane TO app;
//
//	-- whoever relays, handles messages, keeps idempotency keys or cleans up
//	GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA oncebox TO relay;
//	GRANT USAGE, SELECT ON SEQUENCE outbox_seq, outbox_moves, inbox_seq TO relay;
//	GRANT EXECUTE ON FUNCTION outbox_make_partition, outbox_drop_partition,
//		inbox_make_partition, inbox_empty_partition, inbox_drop_partition, outbox_first_lane TO relay;
//
// Grant again after an update that brought tables or functions. The functions make and drop daily partitions with the
// rights of the owner of the tables. Nobody but the owner may call them until it is granted. They act on the tables beside
// them, whatever the caller's search_path, temporary tables and own functions are, and never drop what is younger than 24 hours.
//
// Give the tables a schema in which only their owner may create objects. In others (public is one up to PostgreSQL 14) any role
// may add a function that a statement then calls in place of the one that it means, and [Verify] warns. Nor grant TRIGGER on
// the tables: triggers run with the rights of whoever writes.
//
// # Errors
//
// [Verify] returns [*MissingError] when the tables are not there or not up to date; it names the call that makes them.
// Nothing is left behind by an [Up] that failed.
package migrations
