// Package pagetest reads the pages of the documentation, their command lines and their tables, for the tests that run or check them.
//
// Read first: lines.go:Lines.
package pagetest
