// Package metricstest reads metrics in tests, and gives histograms a load that is known.
//
// Read first: family.go:Gather.
package metricstest
