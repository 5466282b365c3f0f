// Package metricstest reads and fills histograms in tests.
//
// Read first: bucket.go:Bucket.
package metricstest
