// Package prom makes the page on which Prometheus reads the metrics of a process.
//
// # Guarantees
//
// The page has all metrics of the returned provider, those of the Go runtime and those of the process. It shows nothing that other packages have added to
// the global registry of Prometheus, so several services in one process do not meet.
//
// Read first: page.go:New.
package prom
