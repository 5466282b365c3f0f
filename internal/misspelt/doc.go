// Package misspelt compares names, to find the name that somebody has meant.
//
// # Guarantees
//
// It compares bytes, because the names of variables and topics are mostly ASCII. A letter of several bytes may count more than once.
//
// Read first: distance.go:Distance.
package misspelt
