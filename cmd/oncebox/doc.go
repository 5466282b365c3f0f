// Command oncebox is what operators use: it shows what the tables hold, and decides about dead letters.
//
//	go install github.com/oncebox/oncebox/cmd/oncebox@latest
//	export ONCEBOX_DATABASE_URL=postgres://...
//	oncebox stuck
//	oncebox dead list
//	oncebox dead show 0193b2c4-...
//	oncebox dead replay --consumer billing --type order.placed --by ann --why "release 7 knows the currency"
//
// It reads the environment variables of the service, so that it finds the same tables; docs/config.md lists them. It needs no broker: what it
// replays is published and handled by the processes of the service.
//
// # Output
//
// Tables are for people. With --json each command prints one JSON document on the standard output, with names that stay. Questions,
// progress and errors go to the standard error. What came from outside is shown without control characters. Payloads are shown only
// where --payload asks for them.
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
// Commands that change something need --by, who decides, and where something is lost --why. Both are in the audit. They say how many dead letters
// they would treat and ask; --yes answers, --dry-run stops there. What the processes of the service do by themselves every hour, retention run and
// reconcile, needs no --by.
//
// Read first: root.go, then internal/dead/list.go for a command that lists.
package main
