// Package walk records the way of one event: which functions of this module a service enters from Save of an aggregate to the
// acknowledgement of the message.
//
// [Record] compiles the service in folder scenario from copies of the module's files that have a call of package trace in each function, and runs
// it on a real PostgreSQL and a real Pulsar. The first event is left out, because it fills what is read once per process. The way is what each
// of the next three has passed, so that a timer which runs out meanwhile adds nothing.
//
// The test fails if the way grows, or if the section "The way of one event" of docs/architecture.md does not name places that the event passes, in
// this order. It prints the way and its figures with
//
//	go test ./internal/walk -v
//
// Read first: record.go:Record, then trace/trace.go.
package walk
