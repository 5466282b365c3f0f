// Package migrations holds the tables as SQL files, one per table family, and brings a database up to them.
//
// The families are outbox, inbox and idempotency. Each file says why its tables are as they are, and needs no other file than that of oncebox. The
// files name no schema: [Up] runs them with the search_path set to the configured schema, and so can psql or any other tool that applies the files
// of [FS] in the order of their names. Each file records itself in the table oncebox_migrations, so that [Up] and [Verify] know of it whatever tool
// applied it.
//
// # Guarantees
//
// [Up] is one transaction under an advisory lock: it is applied wholly or not at all, however many processes start at once, and does
// nothing, and needs no more than SELECT on oncebox_migrations, when the database is up to date. Where a table of somebody else's has a
// name that it needs it says so, and makes nothing.
//
// [Verify] compares what is there with what the files make: columns, constraints, indexes, sequences, functions with their bodies and
// rights, partitions, the view, owners and their rights. It names each difference and the statement that mends it; its comment says
// what it does not compare. What it compares with is tables.txt, one line per fact, which a test writes from a database that [Up]
// has made. [Applied] asks for the names of the files only.
//
// [Verify], [Applied] and App.Run ask for all files. A service that applies the file of one family alone does not call them.
//
// Until the first release the files change. A database that was made from an earlier text of them is named by [Verify], as one with
// differences or as made from other files: make its tables anew. From then on files that were released never change, and
// an older program accepts a database to which a newer one has applied files of its own.
//
// # Roles
//
// The role that runs [Up] owns the tables. A service may run as it. For any other role [Grants], and the command oncebox grants, print
// what it needs, by its duty:
//
//   - [Service]: a service that relays, handles messages, keeps idempotency keys or cleans up, and the command oncebox
//   - [Writer]: a service that commits events, and cannot take them back
//   - [Caller]: a writer in another language, and a role whose statements fire a trigger that adds events
//   - [Reader]: a dashboard
//
// Grant again after an update that brought tables or functions. [MissingGrants] returns the rights that a role lacks.
//
// The functions add events, and make and drop daily partitions, with the rights of the owner of the tables. Nobody but the owner may call
// them until it is granted. They act on the tables beside them, whatever the caller's search_path, temporary tables and own functions
// are, and never drop what is younger than 24 hours.
//
// Give the tables a schema in which only their owner may create objects. In other schemas (such as public up to PostgreSQL 14) any role may add a
// function that a statement then calls in place of the intended one, and [Verify] warns. Nor grant TRIGGER on the tables: triggers run with the
// rights of the role that writes.
//
// # Errors
//
// [Verify] returns [*MissingError] when files were not applied; it names the call that applies them. It returns [*DifferenceError] when
// something is not as they made it, with a line for each difference and its mend below. Nothing is left behind by an [Up] that failed.
//
// Read first: migrations.go:Up, then verify.go:Verify.
package migrations
