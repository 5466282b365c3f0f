// Package cli has the parts that all commands of oncebox share: a terminal, a session with the database of the service, exit codes, and the forms
// of tables and JSON.
//
// Read first: session.go:Session, then command.go.
package cli
