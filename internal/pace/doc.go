// Package pace limits a rate: the number of rows that an operator's command changes per second, in batches.
//
// # Guarantees
//
// A caller takes batches of at most [Pace.Batch] and calls [Pace.Wait] after each of them. Then at every moment it has done at most one batch more
// than the rate allows. That also holds if it begins a new Pace after the last Wait of the former Pace.
//
// Read first: pace.go:Pace.
package pace
