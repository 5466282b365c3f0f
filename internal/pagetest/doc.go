// Package pagetest reads the pages of the documentation and their command lines, for the tests that run or check them.
//
// Read first: lines.go:Lines.
package pagetest
