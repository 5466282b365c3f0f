// Package endurance holds the tests that treat consumers badly: as processes of their own that are killed, frozen and scaled,
// with a broker that is killed, with handlers that fail. Each ends with one line that says what was counted:
//
//	go test -tags nightly ./internal/endurance -v
//
// Only make nightly runs them: the test files have the build tag nightly.
//
// Effects are rows in PostgreSQL, which say in their order which message was handled when. What is counted is counted there
// and not by the consumers.
//
// A test is believed only if it fails when a guard is taken out. ENDURANCE_WITHOUT takes one out of the consumers: dedupe (an
// entry that is there already counts as new), lock (of the key, when a message is entered), look (whether messages of the key
// are parked), or commit (a message is acknowledged when it comes, and not when its handler has committed).
//
// The tests of crashes run examples/orders on a PostgreSQL of their own that they kill, and compare the answers that clients got with the tables.
// TestProjectorsAndServerAreKilled kills projectors, each in a process of its own, and their server, and compares the published events with the
// committed ones. TestDatabaseIsRestoredUnderProjectors restores an earlier state of their database, in five ways; ENDURANCE_RESTORES is how often.
//
// TestOutageOfAHundredSecondsIsTenLines takes broker, database and what a handler needs away from two services under load, and counts the lines of
// their logs.
package endurance
