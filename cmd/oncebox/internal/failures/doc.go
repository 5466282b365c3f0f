// Package failures has the commands "oncebox failures": it lists what fails by cause, treats all failures of a cause, and keeps notes about them.
//
// Read first: failures.go:New, then act.go:carryOut.
package failures
