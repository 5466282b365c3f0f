package brokers

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/telemetry"
)

// Kind describes a broker adapter.
type Kind struct {
	// Name is the name of the broker in flags, in lower case: pulsar, nats. The variables of the adapter begin with ONCEBOX_NAME_, and the
	// address of the broker is in ONCEBOX_NAME_URL. A name that is not one of oncebox's own adapters has to be listed in ONCEBOX_IGNORE, as
	// ONCEBOX_NAME_*. Required.
	Name string
	// Title is the name of the broker in texts. Required.
	Title string
	// Example is an address, for error messages: nats://localhost:4222. Required.
	Example string
	// Connect connects with the settings of the variables. It reads them with Options.Env before anything else, and returns an error of Env. It does not
	// wait for a broker that is away. Required.
	Connect func(ctx context.Context, o Options) (Connection, error)
}

// Options are what a program decides about a connection.
type Options struct {
	// Env fills a configuration from the variables that begin with prefix: config.Env. It is a field because an adapter does not import package
	// config, which brings the whole of oncebox with it. Required.
	Env func(prefix string, cfg any) error
	// Telemetry sets where logs, traces and metrics go. Default: that of the application, see [messaging.Observed].
	Telemetry telemetry.Config
	// Brief says that a person waits for the answer: an adapter does not wait for parts of the broker that come up later, nor long for its goodbye.
	// Default: false.
	Brief bool
}

// Connection is a connected broker.
type Connection interface {
	messaging.Publisher
	messaging.Subscriber
	// Close ends the connection.
	Close() error
}

// Connector returns the function Kind.Connect of an adapter. It reads a configuration from the variables that begin with prefix, lets set add what the
// program decides, and connects.
func Connector[C any, B Connection](
	prefix string, set func(*C, Options), connect func(context.Context, *C) (B, error),
) func(context.Context, Options) (Connection, error) {
	return func(ctx context.Context, o Options) (Connection, error) {
		var cfg C
		if err := o.Env(prefix, &cfg); err != nil {
			return nil, err
		}
		set(&cfg, o)
		b, err := connect(ctx, &cfg)
		if err != nil {
			return nil, err // a pointer that is nil would be an interface that is not nil
		}
		return b, nil
	}
}

// Check returns what env says about the variables of the broker, and connects to nothing. A program that reads its own variables, too, can so report
// all that is wrong in one error.
func (k *Kind) Check(env func(prefix string, cfg any) error) error {
	var wrong error
	_, _ = k.Connect(context.Background(), Options{Env: func(prefix string, cfg any) error {
		wrong = env(prefix, cfg)
		return errOnlyChecked
	}})
	return wrong
}

// errOnlyChecked ends a Connect that has read its variables.
var errOnlyChecked = errors.New("brokers: the variables were only checked")

// Variable returns the name of the variable with the address of the broker.
func (k *Kind) Variable() string { return variable(k.Name) }

// variable returns the name of the variable with the address of a broker.
func variable(name string) string { return "ONCEBOX_" + strings.ToUpper(name) + "_URL" }

// isSet reports whether the environment has the address.
func isSet(name string) bool { return os.Getenv(variable(name)) != "" }
