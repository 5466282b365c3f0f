// Package pace limits how many things are done per second, in batches.
//
// # Guarantees
//
// A caller that takes batches of [Pace.Batch] and calls [Pace.Wait] after each of them is at no time further than the rate allows plus one batch,
// also if it begins a new Pace after the last Wait of the one before.
//
// Read first: pace.go:Pace.
package pace
