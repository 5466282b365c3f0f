// Package stuck has the command "oncebox stuck": what waits for longer than its turn, or for a decision, and what to type next.
//
// Read first: stuck.go:New, then hint.go:next.
package stuck
