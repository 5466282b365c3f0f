// Package pgtest gives each test a PostgreSQL schema of its own.
//
// All tests of a process share one server: that of ONCEBOX_DATABASE_URL, else that of DATABASE_URL, which make test sets for all
// packages, else a server that the first test starts. A package that uses it has
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
// which stops the server at the end and fails the package if goroutines are left over. A test then opens a database, empty
// or with this module's tables:
//
//	db := pgtest.Open(t)
//	db := pgtest.Migrated(t)
//
// A test without a server does not get skipped, it fails.
//
// Read first: db.go:Migrated, then apart.go:OpenApart and own.go:Start.
package pgtest
