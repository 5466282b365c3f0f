// Package outage finds out whether the broker is away, from what the processes say, so that an outage is one finding and its consequences are not one
// each.
//
// # Guarantees
//
// It is an outage only if all relays that run publish nothing, or all consumers that run have no connection. If one of several has a problem, it is a
// finding of its own. Errors stay texts: the templates escape them.
//
// Read first: outage.go:Of.
package outage
