// Command oncebox is for operators: it shows what the tables hold, and replays or discards dead letters.
//
//	go install github.com/oncebox/oncebox/cmd/oncebox@latest
//	export ONCEBOX_DATABASE_URL=postgres://...
//	oncebox stuck
//	oncebox dead list
//	oncebox dead show 0193b2c4-...
//	oncebox dead replay --consumer billing --type order.placed --by ann --why "release 7 knows the currency"
//
// It reads the environment variables of the service, so that it finds the same tables; docs/config.md lists them. It needs no broker, because the
// processes of the service publish and handle what it replays. Only relay publishes by itself, doctor examines the broker, and commands that show
// waiting messages ask it.
//
// # Output
//
// Tables are for people. With --json each command prints one JSON document on the standard output, whose field names never change. Questions,
// progress and errors go to the standard error. Control characters are removed from texts that came from outside. Payloads are shown only
// with --payload.
//
// # Exit codes
//
//	0  done
//	1  it failed; the error says at which call, and what to do
//	2  it was called in a way that it does not understand
//	3  something is not as it should be: what stuck, doctor, reconcile, rebuild status or migrate verify found
//	4  nothing was found that the arguments select
//	5  the question was answered with no, or nobody was there to answer it
//
// # What changes something
//
// Commands that change something need --by, the name of the person who decides, and if something is lost also --why, the reason. Both are written
// to the audit. Before a change they print how many dead letters it concerns, and ask a question. --yes answers it, and --dry-run stops there. The
// commands retention run and reconcile need no --by, because the processes of the service do the same by themselves every hour.
//
// This program is built with Pulsar. Package command makes the same program with other brokers, such as oncebox-nats of the module messaging/nats.
//
// Read first: command/root.go, then internal/dead/list.go for a command that lists.
package main
