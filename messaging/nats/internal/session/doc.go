// Package session is the connection to the server, with what its users have to know about it: whether it is there, when it was lost, and which requests
// the server does not permit.
//
// Read first: session.go:Session, then link.go:Link.
package session
