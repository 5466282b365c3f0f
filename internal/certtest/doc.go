// Package certtest makes certificates for tests of TLS.
//
// Read first: authority.go:Authority.
package certtest
