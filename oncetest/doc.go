// Package oncetest tests a service that is built with oncebox, on a real PostgreSQL and without waiting.
//
//	func TestMain(m *testing.M) { oncetest.Main(m) }
//
//	func TestOrder(t *testing.T) {
//		kit, web := oncetest.Serve(t, orders.Service()) // the value that main runs
//		web.Send("POST", "/orders/o-1", "", "Idempotency-Key", "key-1")
//		kit.Drain()
//		oncetest.RequireEvent[InvoiceSent](kit)
//	}
//
// A service without package serve has a function that builds it:
//
//	kit := oncetest.New(t, func(s oncetest.Setup) (*oncebox.App, error) {
//		return newService(s.DB, s.Broker, s.Config) // the function that main calls
//	})
//
// Each test has a schema of its own with the tables of oncebox, and a broker in memory. The schema is dropped when the test ends.
// Tests may run in parallel. A service without a broker works too.
//
// The tests use the server that ONCEBOX_DATABASE_URL names, or else DATABASE_URL. If neither is set, the first test that needs a server starts
// one, with the programs of PostgreSQL that are installed on this machine, or that it downloads.
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
// The inbox finds its entry of the message and settles the message without calling the handler. So this test finds a consumer that has no inbox.
// It does not find a handler that writes outside of its unit of work: with another connection, or by a call to another service. To find such a
// handler, let the process die before the handler's COMMIT. Then the handler runs a second time, and its effect is there twice:
//
//	placeOrder(kit.App, "o-1")
//	kit.CrashAt(oncetest.BeforeCommit) // after the request, so that it is the handler's COMMIT
//	kit.Drain()
//	require.Equal(t, 1, invoices(kit.DB))
//
// # A service that dies
//
// A process may die at any time, for example between COMMIT and the answer to it. [Kit.CrashAt] sets the moment. After the crash [Kit.Drain]
// starts the service again and goes on:
//
//	placeOrder(kit.App, "o-1")
//	kit.CrashAt(oncetest.BeforeAck)
//	kit.Drain()
//	require.Equal(t, 1, invoices(kit.DB))
//
// # A request
//
// [Serve] gives the test a [Web], which sends requests to the present process. A request that waits for a consumer, as a read of a read model may do, waits
// for a [Kit.Drain]: [Web.SendAndDrain] does both.
//
//	token := web.Send("POST", "/reservations", "", "Idempotency-Key", "key-1").Header().Get("X-Read-Token")
//	answer := web.SendAndDrain("GET", "/shows/hamlet", "", "X-Read-Token", token)
//
// Without package serve: a start after a crash makes a new App, so its HTTP handler is a new one, too. [NewService] gives the test the present handler,
// or whatever else the service is made of:
//
//	kit, routes := oncetest.NewService(t, func(s oncetest.Setup) (http.Handler, *oncebox.App, error) {
//		app, err := newService(s.DB, s.Broker, s.Config)
//		if err != nil {
//			return nil, nil, err
//		}
//		return newRoutes(app), app, nil
//	})
//	routes().ServeHTTP(answer, request) // both are of net/http/httptest
//
// The package's example of a repeated request is such a test (example_http_test.go).
//
// # Guarantees
//
// Nothing runs between the calls. Events are published and handled only within [Kit.Drain], by the same relay and consumers as in production. So a
// test can look at the outbox before and after. A message that failed waits for [Kit.Advance], unless the service has set a pause so short that it
// is over while Drain still works.
//
// No pause makes a test longer: [Kit.Drain] waits for the service's own statements, and looks every few milliseconds whether the parked
// messages have been handled.
//
// The service's pool refuses a statement whose context carries a unit of work, or belongs to a leased handler. Such a statement is not part of the
// unit: its rows would stay although the unit is rolled back. The error says what to use instead, see config.Config.RefusePool.
//
// # Errors
//
// If a function or method does not find what it requires, it fails the test at once (FailNow). The message says what it found and what to do. Call
// the functions and methods from the test's own goroutine. Only Send and ServeHTTP of a [Web] may also be called from others.
//
// Read first: kit.go:New, then drain.go:Kit.Drain.
package oncetest
