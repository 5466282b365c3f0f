// Package serve runs a service as a process, so that its main is what is its own:
//
//	func main() {
//		serve.Main(serve.Service{
//			Source:  "shop",
//			Brokers: []brokers.Kind{pulsar.Kind()},
//			Setup: func(ctx context.Context, app *oncebox.App) (http.Handler, error) {
//				event.Register[OrderPlaced](app.Registry)
//				app.Consume("order", "sales", sales(app))
//				return routes(app), nil
//			},
//		})
//	}
//
// The process reads its settings from the environment, opens the database, connects to the broker whose address is set, and makes the tables if it is
// asked to. It answers requests, publishes and consumes, or does some of that ([Config].Parts). Beside the requests it answers /healthz, /readyz,
// /metrics, and /console/ if somebody may use it. Traces go to the collector of OTEL_EXPORTER_OTLP_ENDPOINT. Events have the correlation id of their
// request (httpmw.Metadata).
//
// Each part can be used alone: package config, telemetry/prom, telemetry/otlp, serve/probe, console, and oncebox itself. The recipe "A server" in
// docs/recipes.md does by hand what this package does.
//
// # Guarantees
//
// The process listens before anything else, so an address that is taken is an error at once, and probes are answered while database and broker are
// waited for. Requests get 503 until the service is set up.
//
// After SIGTERM the process accepts no new connection, answers the requests that have begun, and then stops publishing and consuming as oncebox.App.Run
// does. It ends within [Config].EndTimeout. A second signal ends it at once. A part that fails for good ends the process with an error.
//
// The package links no client of a broker: a program has those of its [Service].Brokers.
//
// # Errors
//
// Each error at the start names the variable and what to do. If several variables cannot be read, one error names all of them. Values that can be read
// and are not allowed, and missing addresses, are reported after that, when the process starts.
//
// Read first: service.go:Service, then run.go:Run.
package serve
