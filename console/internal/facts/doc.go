// Package facts prepares what the pages of the console show about one event: its properties, its payload and its life.
//
// # Guarantees
//
// It reads nothing. Texts of events stay texts: the templates escape them. Only the address of a trace is made of parts of an event, and only if they are
// the hexadecimal digits of an id.
//
// Read first: life.go:LifeOf, then detail.go.
package facts
