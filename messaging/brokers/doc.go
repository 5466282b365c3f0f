// Package brokers is for programs that are made for several brokers, such as the command oncebox: [Choose] picks the broker that the environment or
// a flag names. Package serve takes the brokers of a service as kinds, too. A program that is made for one broker can call Connect of its adapter.
//
// Each adapter has a function that returns its [Kind]. A program lists the kinds that it is built with, so it has only the clients that it uses.
//
// # Guarantees
//
// A program never connects to a broker that was not clearly meant: an unknown name, two addresses at once, a missing address, and a broker that the
// program is built without are errors that say what to do.
//
// Read first: choose.go:Choose, then kind.go:Kind.
package brokers
