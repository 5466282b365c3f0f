// Package tenant has what the console shows about the tenants of the outbox: who records how much, and how many events of each wait.
//
// # Guarantees
//
// It reads a bounded number of rows, however many events wait. Reading changes nothing.
//
// Read first: row.go:Read.
package tenant
