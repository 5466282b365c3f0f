// Package pauses reads which consumers operators have paused, and keeps a process up to date about it. A pause that was stored is noticed
// within about a second, and before the first message of a process that starts later.
//
// Read first: follower.go:Follower.
package pauses
