package serve

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/internal/configs"
)

// prefix stands before the variables of [Config].
const prefix = "ONCEBOX_SERVE_"

// The parts of a service, for [Config].Parts.
const (
	API       = "api"       // answers requests
	Relay     = "relay"     // publishes the events of the outbox
	Consumers = "consumers" // handles messages
)

// Config configures a process. The process reads these variables from the environment, in addition to the variables of oncebox (config.Config).
type Config struct {
	// Addr is the address for requests, host:port. With port 0 the system chooses a free port, and the log names it. Default: :8080.
	Addr string `env:"ADDR"`
	// AdminAddr is a second address, for /healthz, /readyz, /metrics and /console/. These pages are then not at Addr. Default: none, these pages are at
	// Addr.
	AdminAddr string `env:"ADMIN_ADDR"`
	// Parts are what this process does: api answers requests, relay publishes events, consumers handles messages. A process with api or consumers also
	// removes rows whose retention has ended. Default: api,relay,consumers.
	Parts []string `env:"PARTS"`
	// Broker is the broker of this process: "pulsar", "nats", "kafka" or "rabbitmq". The program must be built with its adapter. With "none" there is no
	// broker: the database carries the events. A program that is built with an adapter does not start if no address of a broker is set, unless Broker is
	// "none". Default: the broker whose address is set.
	Broker string `env:"BROKER"`
	// Migrate makes or updates the tables at the start: the tables of oncebox, and the tables of [Service].Migrate. The role of the database needs the
	// right to make tables. Default: false, the tables must exist.
	Migrate bool `env:"MIGRATE"`

	// ReadTimeout is how long a client may take to send a request. It is also how long the client may take to read the answer. After that the connection
	// is closed. Default: 15s.
	ReadTimeout time.Duration `env:"READ_TIMEOUT"`
	// RequestTimeout is how long the work for a request may take before the context of the request ends. A request with an Idempotency-Key also has the
	// timeout of its middleware (httpmw.IdempotencyConfig.Timeout), which should not be longer than RequestTimeout. Default: 30s.
	RequestTimeout time.Duration `env:"REQUEST_TIMEOUT"`
	// EndTimeout is how long the process may take to end after SIGTERM, at least 1s. Running requests get half of EndTimeout. In a process without relay
	// and consumers requests get all of EndTimeout. Set the time after which the system kills the process (terminationGracePeriodSeconds) a little
	// longer than EndTimeout. Default: 1m20s.
	EndTimeout time.Duration `env:"END_TIMEOUT"`

	// ConsoleOperators are the people who may see and change everything in the console: name:password, separated by commas. There is no console if
	// ConsoleOperators, ConsoleReaders and [Service].Authorize are not set. Default: none.
	ConsoleOperators []string `env:"CONSOLE_OPERATORS"`
	// ConsoleReaders are the people who may see everything in the console, and change nothing: name:password, separated by commas. Default: none.
	ConsoleReaders []string `env:"CONSOLE_READERS"`
	// ConsoleSecret is the key that signs the tokens of forms (console.Config.Secret), at least 32 bytes. Processes whose consoles have the same address
	// need the same ConsoleSecret. Default: none, each process makes a key of its own.
	ConsoleSecret string `env:"CONSOLE_SECRET"`
	// ConsoleTraceURL is the address of a trace, with {trace_id} in place of the id (console.Config.TraceURL). Default: none, ids of traces are shown
	// without a link.
	ConsoleTraceURL string `env:"CONSOLE_TRACE_URL"`

	// LogFormat is the format of the log lines: text or json. Default: text.
	LogFormat string `env:"LOG_FORMAT"`
	// LogLevel is the lowest level of the lines that are logged: debug, info, warn or error. Default: info.
	LogLevel string `env:"LOG_LEVEL"`
}

// WithDefaults returns a copy in which unset fields have their defaults. A nil Config is the zero value.
func (c *Config) WithDefaults() Config {
	out := configs.Copy(c)
	out.Addr = cmp.Or(out.Addr, ":8080")
	if len(out.Parts) == 0 {
		out.Parts = []string{API, Relay, Consumers}
	}
	out.ReadTimeout = cmp.Or(out.ReadTimeout, 15*time.Second)
	out.RequestTimeout = cmp.Or(out.RequestTimeout, httpmw.DefaultTimeout)
	out.EndTimeout = cmp.Or(out.EndTimeout, 80*time.Second)
	out.LogFormat = cmp.Or(out.LogFormat, "text")
	out.LogLevel = cmp.Or(out.LogLevel, "info")
	return out
}

// Validate names every variable that cannot be used.
func (c *Config) Validate() error {
	d := c.WithDefaults()
	var errs []error
	refuse := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("serve: "+prefix+field+" "+format, args...))
	}
	for field, addr := range map[string]string{"ADDR": d.Addr, "ADMIN_ADDR": cmp.Or(d.AdminAddr, d.Addr)} {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			refuse(field, "is %q: give host:port, such as :8080", addr)
		}
	}
	for _, part := range d.Parts {
		if !slices.Contains([]string{API, Relay, Consumers}, part) {
			refuse("PARTS", "has %q: give %s, %s and %s, or some of them", part, API, Relay, Consumers)
		}
	}
	for field, v := range map[string]time.Duration{"READ_TIMEOUT": d.ReadTimeout, "REQUEST_TIMEOUT": d.RequestTimeout} {
		if v <= 0 {
			refuse(field, "is %s: give a duration", v)
		}
	}
	if d.EndTimeout < time.Second {
		refuse("END_TIMEOUT", "is %s: give 1s or more", d.EndTimeout)
	}
	if d.LogFormat != "text" && d.LogFormat != "json" {
		refuse("LOG_FORMAT", "is %q: give text or json", d.LogFormat)
	}
	if _, err := d.level(); err != nil {
		refuse("LOG_LEVEL", "is %q: give debug, info, warn or error", d.LogLevel)
	}
	_, err := d.people()
	return errors.Join(append(errs, err)...)
}

func (c *Config) level() (level slog.Level, err error) {
	return level, level.UnmarshalText([]byte(c.LogLevel))
}

// has reports whether the process runs a part.
func (c *Config) has(part string) bool { return slices.Contains(c.Parts, part) }

// fromEnv reads all settings that a process has, and lets the service change them. The error names all that is wrong.
func fromEnv(s *Service) (app config.Config, process Config, err error) {
	process = s.Defaults
	app, err = config.FromEnv()
	if err = errors.Join(err, config.Env(prefix, &process)); err != nil {
		return app, process, err
	}
	if err := s.configure(&app, &process); err != nil {
		return app, process, err
	}
	if strings.TrimSpace(app.UoW.Source) == "" {
		err = errors.New("serve: Service.Source is empty: set it, or ONCEBOX_SOURCE, to the name of this service; it identifies its events")
	}
	return app, process.WithDefaults(), errors.Join(err, app.Validate(), process.Validate())
}
