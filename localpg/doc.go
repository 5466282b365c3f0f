// Package localpg gives a program or a test an empty PostgreSQL database, for examples, first programs and demonstrations.
//
//	db, err := localpg.Start(ctx)
//	if err != nil {
//		return err
//	}
//	defer db.Close()
//	pool, err := sql.Open("pgx", db.URL)
//
// It takes the first of these servers that there is:
//
//  1. the server that ONCEBOX_DATABASE_URL or DATABASE_URL names
//  2. a server that it starts, with the programs of PostgreSQL 14 or newer that are installed on this machine
//  3. a server that it starts, with programs that it downloads once (about 15 MB) into the user's cache folder
//
// So PostgreSQL need not be installed.
//
// # Guarantees
//
// The database is new, belongs to this run alone, and is gone after [DB.Close]. Nothing else on the server is touched.
//
// A server that was started here listens on 127.0.0.1 only, has a random password, and ends with this process, also if the process is
// killed. If this process runs as root, the server runs as the user nobody, because PostgreSQL refuses to run as root.
//
// # Limits
//
// Servers are started on Linux and macOS only. On other systems set ONCEBOX_DATABASE_URL.
//
// On a server that a variable names, the role needs the right CREATEDB, and a process that is killed leaves its database behind. The names
// of such databases begin with oncebox_local_.
//
// It is not for production: the data ends with the program.
//
// Read first: db.go:Start.
package localpg
