// Package starter compiles a program, runs it, and shows what the go command does meanwhile. The go command itself prints nothing while it compiles, and
// on a fresh machine that takes a minute or two.
//
// Read first: starter.go:Main, then progress.go:progress.
package starter
