// Package status has the command "oncebox status": one screen about waiting events, dead letters and running processes.
//
// Read first: status.go:New, then item.go:Item, which is what it prints.
package status
