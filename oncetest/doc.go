// Package oncetest tests a service that is built with oncebox, on a real PostgreSQL and without waiting.
//
//	func TestMain(m *testing.M) { oncetest.Main(m) }
//
//	func TestOrder(t *testing.T) {
//		kit := oncetest.New(t, func(s oncetest.Setup) (*oncebox.App, error) {
//			return newService(s.DB, s.Broker, s.Config) // the function that main calls
//		})
//		placeOrder(kit.App, "o-1")
//		kit.Drain()
//		oncetest.RequireEvent[InvoiceSent](kit)
//	}
//
// Each test has a schema of its own with the tables of oncebox, and a broker in memory. The schema is dropped when the test ends.
// Tests may run in parallel. A service without a broker works too.
//
// The server is that of ONCEBOX_DATABASE_URL, else that of DATABASE_URL. If neither is set, a PostgreSQL of this machine is used, or one is
// downloaded, and the first test that needs it starts a server.
//
// # A handler that is idempotent
//
// A broker may deliver a message again at any time. [Kit.Redeliver] does so:
//
//	placeOrder(kit.App, "o-1")
//	kit.Drain()
//	kit.Redeliver()
//	kit.Drain()
//	require.Equal(t, 1, invoices(kit.DB))
//
// The inbox knows the message and settles it without the handler. So this finds a consumer without an inbox, and not a handler that
// writes outside of its unit: with another connection, or by a call to another service. Such a handler is found by a process that dies
// before the handler's COMMIT, because then the handler runs a second time:
//
//	placeOrder(kit.App, "o-1")
//	kit.CrashAt(oncetest.BeforeCommit) // after the request, so that it is the handler's COMMIT
//	kit.Drain()
//	require.Equal(t, 1, invoices(kit.DB))
//
// # A service that dies
//
// A process may die at any time, for example between COMMIT and the answer to it. [Kit.CrashAt] names the moment. [Kit.Drain] starts the
// service anew and goes on:
//
//	placeOrder(kit.App, "o-1")
//	kit.CrashAt(oncetest.BeforeAck)
//	kit.Drain()
//	require.Equal(t, 1, invoices(kit.DB))
//
// # A request
//
// An HTTP handler is made in the function that [New] takes, because a start after a crash makes a new App, and is called with net/http/httptest.
// The package's example of a repeated request shows it (example_http_test.go).
//
// # Guarantees
//
// Nothing runs between the calls. Events are published and handled within [Kit.Drain] only, by the relay and the consumers that
// production runs. So a test sees the outbox before and after. A failed message waits for [Kit.Advance], unless the service sets a pause
// that is over while Drain works.
//
// No pause makes a test longer: [Kit.Drain] waits for the service's own statements, and looks every few milliseconds whether the parked
// messages have been handled.
//
// The service's pool refuses a statement whose context carries a unit of work, or is that of a leased handler. Sent to the pool, what it
// writes would stay where the unit is rolled back. The error says what to use, see config.Config.RefusePool.
//
// # Errors
//
// Whatever is not as it should be fails the test at once (FailNow). The message says what was there instead and what to do. Call the
// functions and methods from the test's own goroutine.
//
// Read first: kit.go:New, then drain.go:Kit.Drain.
package oncetest
