// Package apptest runs applications in tests.
//
// Its own tests are those of whole services that need the client of Pulsar, or another large module that no program needs. go mod tidy loads
// the tests of each package that a program imports, with all modules that these tests import. It does not load the tests of a package that only tests
// import, as this one. A test of internal/newcomer fails if a test of another package imports such a module.
//
// Read first: app.go:Run.
package apptest
