// Package migrations holds the tables as SQL files, one per table family, and applies them to a database.
//
// The families are outbox, inbox and idempotency. Each file gives the reasons for its tables, and needs no other file than that of oncebox. The
// files name no schema: [Up] runs them with the search_path set to the configured schema. psql, or any other tool, can apply the files
// of [FS] too, in the order of their names. Each file records itself in the table oncebox_migrations, so [Up] and [Verify] know that it was applied,
// whatever tool applied it.
//
// # Guarantees
//
// [Up] is one transaction under an advisory lock: it is applied completely or not at all, however many processes start at once. If the database is
// up to date, it does nothing and needs only SELECT on oncebox_migrations. If another table already has a name that it needs, it returns an
// error that names the table, and makes nothing.
//
// [Verify] compares the database with what the files make: columns, constraints, indexes, sequences, functions with their bodies and
// rights, partitions, the view, owners and their rights. Its error has each difference and the statement that mends it; its comment says
// what it does not compare. The facts to compare with are in tables.txt, one per line, which a test writes from a database that [Up]
// has made. [Applied] compares only the names of the files.
//
// [Verify], [Applied] and App.Run ask for all files. A service that applies the file of one family alone does not call them.
//
// Until the first release the existing files are edited. If a database was made from an earlier text of them, [Verify] returns an error: make its
// tables anew. After the first release a released file never changes, each change is a file of its own, and an older program accepts a database to
// which a newer one has applied further files.
//
// # Roles
//
// The role that runs [Up] owns the tables. A service may run as that role. For any other role [Grants], and the command oncebox grants, print
// the rights that it needs, by its duty:
//
//   - [Service]: a service that relays, handles messages, keeps idempotency keys or cleans up, and the command oncebox
//   - [Writer]: a service that commits events, and cannot take them back
//   - [Caller]: a writer in another language, and a role whose statements fire a trigger that adds events
//   - [Reader]: a dashboard
//
// Grant again after an update that brought tables or functions. [MissingGrants] returns the rights that a role lacks.
//
// The functions add events, and make and drop daily partitions, with the rights of the owner of the tables. Only the owner may call
// them, until you grant more. They act on the tables of their own schema, whatever search_path, temporary tables or functions the caller
// has, and never drop a partition that is younger than 24 hours.
//
// [Up] makes the schema oncebox if no other is set, and only its owner may create objects there. In a schema where every role may (such as public up
// to PostgreSQL 14) any role may add a function that a statement then calls in place of the intended one, and [Verify] warns. Nor grant TRIGGER on the
// tables: triggers run with the rights of the role that writes.
//
// # Errors
//
// [Verify] returns [*MissingError] if files were not applied; the error names the call that applies them. It returns [*DifferenceError] if
// something differs, with a line for each difference and the statement that mends it below. If [Up] fails, it leaves nothing behind.
//
// Read first: migrations.go:Up, then verify.go:Verify.
package migrations
