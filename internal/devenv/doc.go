// Package devenv gives tests, examples and benchmarks a real PostgreSQL and a real Apache Pulsar.
//
// [Postgres] and [Pulsar] return a server that answers, found in this order:
//
//   - PostgreSQL: DATABASE_URL; initdb and postgres, 14 or newer, on this machine; else a build of PostgreSQL 17 that is
//     fetched once (about 15 MB) and kept in the user's cache folder.
//   - Pulsar: PULSAR_URL, with the admin address in PULSAR_ADMIN_URL (port 8080 of the same host); a distribution in the user's cache folder; else
//     the official one, fetched once (245 MB) with Maven. Java 17 and Maven are installed with apt-get where that is possible.
//
// [Start] returns both, for programs that run others. [Browser] finds or installs a Chromium in the same way.
//
// Which one it was is said in one line. A server that was started here has a data folder of its own below the temporary
// folder and listens on free ports of 127.0.0.1. Durability is as the server's makers set it: PostgreSQL syncs at each
// commit, unless the caller asks for less ([Options].Volatile); a standalone Pulsar does not sync its journal and survives the
// loss of its process, not of power.
//
// # Guarantees
//
// Nothing has to be called before or besides these functions: no hook in main or TestMain. PostgreSQL refuses to run
// as root, so for root it runs as nobody.
//
// A server never outlives the process that started it, SIGKILL of that process included: a watchdog process waits for the
// end of a pipe that only the starter holds open, then ends the server and removes its folder.
//
// Every wait is bounded and honours the context.
//
// # Errors
//
// An error about a server ends with the last lines of that server's log. An error about something that is missing names the
// step that provides it.
//
// # Limits
//
// Servers are started on Linux and macOS only; elsewhere DATABASE_URL and PULSAR_URL have to name running ones.
//
// Read first: servers.go:Start, then postgres.go:Postgres and pulsar.go:Pulsar.
package devenv
