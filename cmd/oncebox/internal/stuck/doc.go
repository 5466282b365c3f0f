// Package stuck has the command "oncebox stuck". It lists events, messages and requests that have waited too long or that need a decision of an
// operator, and the command to type next.
//
// Read first: stuck.go:New, then hint.go:next.
package stuck
