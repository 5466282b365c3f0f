// Package metricstest reads metrics in tests, and gives histograms a load that is known.
package metricstest
