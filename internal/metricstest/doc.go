// Package metricstest reads metrics in tests, and fills histograms with known values.
//
// Read first: family.go:Gather.
package metricstest
