// Package linktest puts a link between a client and its broker that a test can cut.
//
// Read first: link.go:Link.
package linktest
