// Package pgtest gives each test a PostgreSQL schema of its own.
//
// All tests of a process share one server: the server that ONCEBOX_DATABASE_URL names, or else DATABASE_URL, which make test sets for all
// packages. If neither is set, the first test starts a server. A package with such tests has
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
// which stops the server at the end and fails the package if goroutines are left over. A test then opens a database, empty
// or with this module's tables:
//
//	db := pgtest.Open(t)
//	db := pgtest.Migrated(t)
//
// If there is no server, a test fails; it is not skipped.
//
// Read first: db.go:Migrated, then apart.go:OpenApart and own.go:Start.
package pgtest
