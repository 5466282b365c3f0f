// Package pulsartest gives each test a Pulsar namespace of its own.
//
// All tests of a process share one server: the server that PULSAR_URL names, which make test sets for all packages. If it is not set, the first
// test starts a server, which takes 7 to 15 seconds. The package's TestMain stops it:
//
//	func TestMain(m *testing.M) { pgtest.Main(m, pulsartest.Stop) }
//
// If there is no server, a test fails; it is not skipped. This package has no client of Pulsar: it makes and removes namespaces through the admin
// API.
//
// Read first: namespace.go:Open, then server.go:Server.
package pulsartest
