// Package doctor compares the settings of a service with each other, with its database, and with its broker.
//
// # Guarantees
//
// [Examine] only reads. Each [Finding] says what is wrong and what to do. If a check cannot be made, for example because a right is missing, that
// is a finding too, and the other checks go on. If the set-up has no faults, the list is empty.
//
// # Limits
//
// It sees the settings of one process and the state of one moment. It does not see the code of the service.
//
// Read first: examine.go:Examine, then finding.go.
package doctor
