// Package status has the command "oncebox status": one screen with what waits, what is dead and what runs.
//
// Read first: status.go New, then item.go Item, which is what it prints.
package status
