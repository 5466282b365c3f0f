// Package doctor compares the settings of a service with each other, with its database, and with its broker.
//
// # Guarantees
//
// [Examine] only reads. Each [Finding] says what is wrong and what to do. Where something could not be looked at, for a lack of rights for
// example, that is a finding too, and the other checks go on. On a set-up without faults the list is empty.
//
// # Limits
//
// It sees one process's settings, and the state of one moment. It does not see the code of the service.
//
// Read first: examine.go:Examine, then finding.go.
package doctor
