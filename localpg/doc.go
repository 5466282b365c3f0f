// Package localpg gives a program or a test an empty PostgreSQL database, for examples, first programs and demonstrations.
//
//	db, err := localpg.Start(ctx)
//	if err != nil {
//		return err
//	}
//	defer db.Close()
//	pool, err := sql.Open("pgx", db.URL)
//
// The database is on the first of these servers that exists:
//
//  1. the server that ONCEBOX_DATABASE_URL or DATABASE_URL names
//  2. a server that localpg starts, with the programs of PostgreSQL 14 or newer that are installed on this machine
//  3. a server that localpg starts, with programs that it downloads once (about 15 MB) into the user's cache folder
//
// So PostgreSQL need not be installed.
//
// # Guarantees
//
// The database is new, no other run uses it, and [DB.Close] drops it. Other databases of the server are not changed.
//
// A server that localpg starts listens only on 127.0.0.1, has a random password, and ends when this process ends, even if the process is killed.
// If this process runs as root, the server runs as the user nobody, because PostgreSQL refuses to run as root.
//
// # Limits
//
// Servers are started on Linux and macOS only. On other systems set ONCEBOX_DATABASE_URL.
//
// If a variable names the server, its role needs the right CREATEDB. There, a process that is killed leaves its database behind. The names of
// these databases begin with oncebox_local_.
//
// Do not use it in production: the data is deleted when the program ends.
//
// Read first: db.go:Start.
package localpg
