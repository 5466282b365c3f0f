// Package oncetest tests a service that is built with oncebox, on a real PostgreSQL and without waiting.
//
//	func TestMain(m *testing.M) { oncetest.Main(m) }
//
//	kit := oncetest.New(t, func(s oncetest.Setup) (*oncebox.App, error) {
//		return newService(s.DB, s.Broker, s.Config) // the function that main calls
//	})
//	placeOrder(kit.App, "o-1")
//	kit.Drain()
//	oncetest.RequireEvent[InvoiceSent](kit)
//
// Each test has a schema of its own with the tables of oncebox, and a broker in memory. The schema is dropped when the test ends.
// Tests may run in parallel. The server is that of DATABASE_URL; without it, one is found on this machine or fetched, and started
// by the first test that needs it.
//
// # A handler that is idempotent
//
// A broker may deliver a message again, at any time. [Kit.Redeliver] does so:
//
//	placeOrder(kit.App, "o-1")
//	kit.Drain()
//	kit.Redeliver()
//	kit.Drain()
//	require.Equal(t, 1, invoices(kit.DB))
//
// # A service that dies
//
// A process may die at any moment, between COMMIT and its answer for example. [Kit.CrashAt] names the moment, and [Kit.Drain] starts the
// service anew and goes on:
//
//	placeOrder(kit.App, "o-1")
//	kit.CrashAt(oncetest.BeforeAck)
//	kit.Drain()
//	require.Equal(t, 1, invoices(kit.DB))
//
// # Guarantees
//
// Nothing runs between the calls: events are published and handled within [Kit.Drain] only, by the relay and the consumers that
// production runs. So a test sees the outbox before and after. A failed message is not tried again before [Kit.Advance]
// has moved the time on, unless the service sets pauses of its own that end while Drain works.
//
// [Kit.Drain] waits for the service's own statements, and looks every few milliseconds whether parked messages have ended. No other
// pause makes a test longer.
//
// The pool refuses a statement whose context carries a unit of work, or is that of a leased handler: what it wrote would stay where the unit is
// rolled back. The error says what to use, see config.Config.RefusePool.
//
// # Errors
//
// Everything fails the test at once (FailNow), with a message that lists what there was instead. Call the methods from the test's own
// goroutine.
package oncetest
