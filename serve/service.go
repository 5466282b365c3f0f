package serve

import (
	"context"
	"net"
	"net/http"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/console"
	"github.com/oncebox/oncebox/messaging/brokers"
)

// Service is what a program has of its own. Only Setup is required.
type Service struct {
	// Source is the name of the service in its events, unless ONCEBOX_SOURCE is set. One of the two is required.
	Source string
	// Brokers are the adapters that the program links. A variable with its address, such as ONCEBOX_PULSAR_URL, chooses the broker. A program that
	// links a broker starts without an address only if [Config].Broker says none. Default: the database carries the events.
	Brokers []brokers.Kind
	// Broker is a connected broker, in place of Brokers. The program closes it after [Run].
	Broker oncebox.Broker

	// Setup registers the types of events and the consumers, and returns the handler of the requests. It is called once, in every process of the
	// service, when the database answers. It is not called if the tables of oncebox belong to another service (oncebox.ForeignError). nil as handler
	// means that there are no requests, apart from those of probes and operators. If it is a http.ServeMux, requests without a route get problems
	// (httpjson.Mux).
	Setup func(ctx context.Context, app *oncebox.App) (http.Handler, error)
	// Migrate makes the service's own tables. It is called before Setup and after oncebox's tables were made, if [Config].Migrate is set. Several
	// processes may call it at the same time. It is not called if the tables of oncebox belong to another service (oncebox.ForeignError). [Tables] makes
	// it of a script. Default: nothing is made.
	Migrate func(ctx context.Context, db *bun.DB) error
	// Ready returns an error if the process cannot work for a reason of its own. It is called for /readyz, after the checks of oncebox. Default: no
	// further check.
	Ready func(ctx context.Context) error
	// Authorize says who may see and change what in the console, in place of the passwords of [Config].ConsoleOperators
	// and [Config].ConsoleReaders.
	Authorize console.Authorizer

	// Defaults are the settings of the process whose variables are not set. With Config{Migrate: true, LogFormat: "json"} each process makes its tables
	// and logs JSON, unless ONCEBOX_SERVE_MIGRATE or ONCEBOX_SERVE_LOG_FORMAT is set. A field that is zero has the default of [Config].
	Defaults Config
	// Configure changes the settings that Defaults and the environment give, also those of oncebox. A field that is zero was not set there. Default: they
	// stay as they are.
	Configure func(app *config.Config, process *Config) error
	// Close ends what the service has made for itself. It is called last, also if the service could not start. Default: nothing is left to end.
	Close func() error
	// Started is called once when requests are answered, with the address of the requests. Default: only the log has the address.
	Started func(addr net.Addr)
}
