// Package adopt is the command "oncebox adopt". It takes over the outbox table that a service has already, see package outbox/adopt.
//
// Read first: adopt.go:New.
package adopt
