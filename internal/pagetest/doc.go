// Package pagetest reads the command lines of a page of the documentation, for the tests that run or check them.
//
// Read first: lines.go:Lines.
package pagetest
