// Package localpg gives a program or a test an empty PostgreSQL database to try things with: examples, first programs, demonstrations.
//
//	db, err := localpg.Start(ctx)
//	if err != nil {
//		return err
//	}
//	defer db.Close()
//	pool, err := sql.Open("pgx", db.URL)
//
// The server is, in this order: the one that ONCEBOX_DATABASE_URL or DATABASE_URL names; one that is started here, with the programs of
// PostgreSQL 14 or newer on this machine; the same with programs that are downloaded once (about 15 MB) into the user's cache folder.
// Nothing has to be installed.
//
// # Guarantees
//
// The database is new, belongs to this run alone, and is gone after [DB.Close]. Nothing else on the server is touched.
//
// A server that was started here listens on 127.0.0.1 only, asks for a password that nobody else knows, and ends with this process, also
// if that is killed. It runs as nobody if this process is root's, because PostgreSQL refuses to run as root.
//
// # Limits
//
// A server is started on Linux and macOS only. Elsewhere set ONCEBOX_DATABASE_URL.
//
// On a server that was found, the role needs the right CREATEDB, and a process that is killed leaves its database behind. Its name begins
// with oncebox_local_.
//
// It is not for production: the data ends with the program.
package localpg
