// Package adapters has the parts of adapters of brokers that no program needs by itself: [Start] waits
// for a broker that is away when the program starts, and [Calls] lets Close wait for the calls that are under way.
//
// Read first: start.go:Start.Begin.
package adapters
