// Package linktest puts a link between a client and its server, a broker or PostgreSQL, that a test can cut, freeze, silence, or cut after a number of
// bytes.
//
// Read first: link.go:Link.
package linktest
