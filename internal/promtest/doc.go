// Package promtest reads metrics in tests as Prometheus sees them.
//
// Read first: family.go:Gather.
package promtest
