package devenv

import (
	"fmt"
	"io"
	"maps"
	"os"
	"time"
)

// DefaultStartTimeout limits one start of one server. Pulsar has taken three minutes on two cores with ten times as
// much work as they could do.
const DefaultStartTimeout = 10 * time.Minute

// DefaultFetchTimeout limits the download of a server, which happens once.
const DefaultFetchTimeout = 15 * time.Minute

// Options sets how a server is found and started. A nil *Options is the zero value.
type Options struct {
	// Out receives a line about the server that was found, and the progress of a download if Out is a
	// terminal. Default: os.Stderr.
	Out io.Writer

	// PostgresVariables are environment variables that may contain the address of a running PostgreSQL. The first variable that is set
	// counts. Default: DATABASE_URL.
	PostgresVariables []string

	// Own starts a server even if DATABASE_URL or PULSAR_URL names one, for a test that kills the server.
	// Default: false.
	Own bool

	// Volatile starts servers for tests: a PostgreSQL with fsync and full_page_writes off, with its data in memory if
	// Linux has room for it, and a Pulsar whose code Java compiles only quickly. The data survives when the processes
	// are killed, but not when the machine crashes. Default: false.
	Volatile bool

	// StartTimeout limits a start, from the launch of the program to its first answer. Default: 10m.
	StartTimeout time.Duration

	// PulsarSettings are written into the configuration of a Pulsar that is started, for example a short
	// keep-alive. Default: none.
	PulsarSettings map[string]string

	// RabbitMQSettings are written into the rabbitmq.conf of a RabbitMQ that is started. Default: none.
	RabbitMQSettings map[string]string

	// PostgresSettings are set for a PostgreSQL that is started, as by postgres -c. Default: none.
	PostgresSettings map[string]string

	// FetchTimeout limits the download of a server that is not on this machine. Default: 15m.
	FetchTimeout time.Duration
}

func withDefaults(o *Options) Options {
	var opts Options
	if o != nil {
		opts = *o
	}
	if opts.Out == nil {
		opts.Out = os.Stderr
	}
	if opts.PostgresVariables == nil {
		opts.PostgresVariables = []string{"DATABASE_URL"}
	}
	if opts.StartTimeout == 0 {
		opts.StartTimeout = DefaultStartTimeout
	}
	if opts.FetchTimeout == 0 {
		opts.FetchTimeout = DefaultFetchTimeout
	}
	return opts
}

// runningPostgres returns the URL of a running server and the variable that contains it, or "" if a server
// has to be started.
func (o Options) runningPostgres() (dsn, variable string) {
	for _, variable := range o.PostgresVariables {
		if dsn := os.Getenv(variable); dsn != "" && !o.Own {
			return dsn, variable
		}
	}
	return "", ""
}

// settings returns the settings for a PostgreSQL that is started.
func (o Options) settings() map[string]string {
	if !o.Volatile {
		return o.PostgresSettings
	}
	settings := map[string]string{"fsync": "off", "full_page_writes": "off"}
	maps.Copy(settings, o.PostgresSettings)
	return settings
}

func (o Options) sayf(format string, args ...any) {
	fmt.Fprintf(o.Out, format+"\n", args...)
}

// terminal returns Out if it is a terminal, else nil.
func (o Options) terminal() *os.File {
	f, ok := o.Out.(*os.File)
	if !ok {
		return nil
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	return f
}
