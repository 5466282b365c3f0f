// Package endurance has tests under bad conditions: consumers are processes of their own, which the tests kill, freeze and scale; the broker is
// killed; handlers fail. Each test ends with one line of figures:
//
//	go test -tags nightly ./internal/endurance -v
//
// Only make nightly runs them: the test files have the build tag nightly.
//
// An effect of a handler is a row in PostgreSQL. The order of the rows shows when each message was handled. The tests count these rows, so no
// figure comes from a consumer.
//
// A test proves something only if it fails when a guard is taken out of the consumers. ENDURANCE_WITHOUT names the guard: with dedupe an existing
// entry counts as new; with lock a message is entered without the lock of its key; with look a consumer does not look whether messages of the key
// are parked; with commit a message is acknowledged when it comes, before its handler has committed.
//
// The tests of crashes run examples/orders on a PostgreSQL of their own, kill that server, and compare the answers that clients got with the
// tables. TestProjectorsAndServerAreKilled kills projectors, each in a process of its own, and their server, and compares the published events
// with the committed ones. TestDatabaseIsRestoredUnderProjectors restores an earlier state of their database, in five ways; ENDURANCE_RESTORES is
// the number of rounds.
//
// TestOutageOfAHundredSecondsIsTenLines makes the broker, the database and a service that a handler calls unreachable, for two services under
// load, and counts the lines of their logs.
//
// TestSwitchUnderLoad lets old code write an outbox table of its own and new code write that of oncebox, and kills the processes that move the rows.
// With ENDURANCE_WITHOUT=forward the trigger is left out, and events overtake rows.
package endurance
