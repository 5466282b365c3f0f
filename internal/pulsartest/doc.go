// Package pulsartest gives each test a Pulsar namespace of its own.
//
// All tests of a process share one server: that of PULSAR_URL, which make test sets for all packages, else a server that the
// first test starts, in 7 to 15 seconds. The package's TestMain stops it:
//
//	func TestMain(m *testing.M) { pgtest.Main(m, pulsartest.Stop) }
//
// A test without a server does not get skipped, it fails. This package has no client: a namespace is made and removed over
// the admin API.
//
// Read first: namespace.go:Open, then server.go:Server.
package pulsartest
