// Package adapters has what the adapters of oncebox share and no program needs by itself: [Start] reaches a broker that may be away when the program
// starts, [Calls] lets Close wait for the calls that are under way, [Gate] is the state of a receiver, and [Owner] says whether a subscription may be
// shared. The other functions are steps that each adapter takes in the same way.
//
// Read first: start.go:Start.Begin, then calls.go:Calls.Begin.
package adapters
