// Package walk records the way of one event: the functions of this module that a service calls, from Save of an aggregate to the acknowledgement
// of the message.
//
// [Record] copies the files of the module and adds a call of package trace to each function. It compiles the service in folder scenario from these
// copies, and runs it on a real PostgreSQL and a real Pulsar. The first event does not count, because it also fills memories that a process fills
// only once. The way contains the functions that each of the next six events has passed, so a timer that fires during some of them adds none.
//
// The test fails if the way grows, or if the section "The way of one event" of docs/architecture.md does not name functions that the event passes,
// in this order. It prints the way and its figures with
//
//	go test ./internal/walk -v
//
// Read first: record.go:Record, then trace/trace.go.
package walk
