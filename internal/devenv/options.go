package devenv

import (
	"fmt"
	"io"
	"maps"
	"os"
	"time"
)

// DefaultStartTimeout bounds one start of one server. Pulsar has been seen to take three minutes on two cores that had ten times as
// much to do.
const DefaultStartTimeout = 10 * time.Minute

// DefaultFetchTimeout bounds the one-time download of a server.
const DefaultFetchTimeout = 15 * time.Minute

// Options says how a server is found and started. A nil *Options is the same as a zero one.
type Options struct {
	// Out receives one line about the server that was found, and the progress of a download if it is a terminal.
	// Default: os.Stderr.
	Out io.Writer

	// PostgresVariables are the environment variables that may name a running PostgreSQL; the first that is set counts. Default:
	// DATABASE_URL.
	PostgresVariables []string

	// Own starts a server also where DATABASE_URL or PULSAR_URL names one: for a test that kills it. Default: false.
	Own bool

	// Volatile starts servers for tests: a PostgreSQL with fsync and full_page_writes off, whose data lies in memory where Linux has room
	// for it, and a Pulsar that is compiled quickly and not well. The data survives the kill of the processes, and not that of the machine.
	// Default: false.
	Volatile bool

	// StartTimeout bounds a start, from the launch of the program to its first answer. Default: 10m.
	StartTimeout time.Duration

	// PulsarSettings are written into the configuration of a Pulsar that is started: brokers whose keep-alive is short, for
	// example. Default: none.
	PulsarSettings map[string]string

	// PostgresSettings are given to a PostgreSQL that is started, as with postgres -c. Default: none.
	PostgresSettings map[string]string

	// FetchTimeout bounds the download of a server that is not on this machine. Default: 15m.
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

// runningPostgres returns the URL of a running server and the variable that names it, or "" if a server is to be started.
func (o Options) runningPostgres() (dsn, variable string) {
	for _, variable := range o.PostgresVariables {
		if dsn := os.Getenv(variable); dsn != "" && !o.Own {
			return dsn, variable
		}
	}
	return "", ""
}

// settings returns those of PostgreSQL.
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

// terminal returns Out if a person watches it, else nil.
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
