// Package devenv gives tests, examples and benchmarks a real PostgreSQL and a real Apache Pulsar.
//
// [Postgres] and [Pulsar] return a server that answers. They take the first that exists:
//
//   - PostgreSQL: the server that DATABASE_URL names; a server started with initdb and postgres, 14 or newer, of this machine; a server started
//     with a build of PostgreSQL 17 that is downloaded once (about 15 MB) into the user's cache folder.
//   - Pulsar: the server that PULSAR_URL names, with the admin address in PULSAR_ADMIN_URL (default: port 8080 of the same host); a server started
//     from the distribution in the user's cache folder. If it is not there, the official distribution is downloaded once (245 MB) with Maven. Java
//     17 and Maven are installed with apt-get where that is possible.
//
// [Kafka] returns a Kafka: the server that KAFKA_URL names, or a broker that is started from libraries that are downloaded once (54 MB) with Maven.
// [RabbitMQ] returns a RabbitMQ: the server that AMQP_URL names, with its management plugin at AMQP_MANAGEMENT_URL (default: port 15672 of the same
// host), or a server that is started from the Debian package, which is unpacked once (35 MB) into the user's cache folder.
//
// [Start] returns PostgreSQL and Pulsar, for programs that run others. [Browser] finds or installs a Chromium in the same way.
//
// One line of output says which server it is. A server that devenv starts has a data folder of its own below the temporary folder, and listens on
// free ports of 127.0.0.1. Durability has the default of each server: PostgreSQL syncs at each commit, unless the caller sets [Options].Volatile.
// A standalone Pulsar does not sync its journal, so its data survives the loss of its process, but not the loss of power.
//
// # Guarantees
//
// These functions need no other call, and no hook in main or TestMain. PostgreSQL refuses to run as root, so if this process runs as root, the
// server runs as the user nobody.
//
// A server never outlives the process that started it, even if that process gets SIGKILL. A watchdog process waits until a pipe is closed that
// only the starting process holds open. Then it ends the server and removes the server's folder.
//
// Every wait has a time limit, and ends with the context.
//
// # Errors
//
// An error about a server ends with the last lines of that server's log. If a program is missing, the error names the step that installs it.
//
// # Limits
//
// Servers are started on Linux and macOS only; elsewhere DATABASE_URL and PULSAR_URL must name running servers.
//
// Read first: servers.go:Start, then postgres.go:Postgres and pulsar.go:Pulsar.
package devenv
