package config

import (
	"cmp"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/configs"
	"github.com/oncebox/oncebox/internal/quietlog"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/projector"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

// Config configures a whole application. Each field has an environment variable: its tag with the prefix ONCEBOX_. docs/config.md lists them all.
type Config struct {
	// DatabaseURL is the address of the PostgreSQL database, for [OpenDB]. Default: none, OpenDB needs one.
	DatabaseURL string `env:"DATABASE_URL"`
	// Schema is the database schema of the tables. Default: the first one of the search_path that connections begin with.
	Schema string `env:"SCHEMA"`
	// Pooler must be true if a transaction-mode pooler stands between the program and the database. Default: false.
	Pooler bool `env:"POOLER"`

	// IdleInTransaction is how long a session may be idle within a transaction. After that PostgreSQL ends the session. Without a limit a process
	// that is frozen, or whose machine has vanished, would keep the locks of its keys and rows for ever. Make it longer than the longest pause of a
	// handler between two statements of its unit. It has no effect behind a Pooler, nor if the URL has idle_in_transaction_session_timeout. Default:
	// 5m. With -1 the server's own setting stays.
	IdleInTransaction time.Duration `env:"IDLE_IN_TRANSACTION"`

	// TCPUserTimeout is how long the database host may be silent, at least 1s. After that the connection is given up. Without a limit a statement
	// would wait for about 15 minutes if the host or the network has vanished. A new connection has a quarter of it until the host accepts, and all
	// of it until the session has begun, unless the URL has connect_timeout. A long statement is not ended, because a living host confirms that it
	// is there. A living proxy does so too, even if the host behind it is dead. Default: 20s. With -1 the settings of the operating system stay.
	TCPUserTimeout time.Duration `env:"TCP_USER_TIMEOUT"`

	// DatabaseWait is how long a starting process waits for a database that is away. A database is away if its server does not answer, its host is
	// unknown, it recovers or shuts down, it has no connection left, or, with target_session_attrs, no server takes writes yet. The limit applies to
	// each call of [OpenDB], [UseDB], [UsePool], App.Migrate, App.Run, Projector.Run and Inbox.Run by itself, and each logs that it waits. An error
	// that waiting does not mend is returned at once: a wrong password, certificate or database name, or a missing table. Default: 0, for as long as
	// the context lasts. With -1 a database that is away is an error at once, too.
	DatabaseWait time.Duration `env:"DATABASE_WAIT"`

	// RefusePool makes the pool refuse statements that belong into a unit of work, with [uow.ErrPool]. They are recognized by their context: it
	// carries an open unit of this pool, or it is that of a handler that runs under a lease (inbox.Leased). Such a statement would commit by itself,
	// and be executed again when the unit is repeated. Use [uow.Outside] for statements that are meant to go to the pool. A statement with another
	// context is not refused, nor is a statement whose first argument is a pgx.QueryExecMode. The setting works with [OpenDB] only: with it, [UseDB]
	// and [UsePool] return an error, because the service opened their connections itself. The analyzer unitpool of the module analysis finds many of
	// these statements without running anything. Default: false.
	RefusePool bool `env:"REFUSE_POOL"`

	// AuditRetention is how long the audit entries of outbox, inbox and idempotency keys are kept, at least 24h. Default: 9600h, which is 400 days.
	// With -1 they are kept for ever.
	AuditRetention time.Duration `env:"AUDIT_RETENTION"`

	// NoHistory keeps no history of the gauges. Otherwise one process writes backlog, ages, rates and failures of outbox and consumers into the table
	// oncebox_history, a row for each minute, and for each ten minutes after two hours. The console draws the last 24 hours from it. Default: false.
	NoHistory bool `env:"NO_HISTORY"`

	// UoW configures units of work. Its Registry, Source, DefaultTenant and MaxPayload are the defaults of the other packages.
	UoW uow.Config
	// Outbox configures the tables of events.
	Outbox outbox.Config `envPrefix:"OUTBOX_"`
	// Projector configures the relay. Its variables share the prefix of Outbox.
	Projector projector.Config `envPrefix:"OUTBOX_"`
	// Inbox configures the deduplication of consumers.
	Inbox inbox.Config `envPrefix:"INBOX_"`
	// Consumer configures the loop of consumers.
	Consumer messaging.ConsumerConfig `envPrefix:"CONSUMER_"`
	// Idempotency configures the keys of HTTP requests.
	Idempotency idempotency.Config `envPrefix:"IDEMPOTENCY_"`

	// Telemetry sets where logs, traces and metrics go, for every package whose own Telemetry does not set it. Default: slog.Default() and the
	// global providers.
	Telemetry telemetry.Config
	// LogInterval is the time between two log lines about a failure that repeats, at least 1s; each line has the number of failures, see [Quiet]. It
	// applies to the Logger of every package, unless [Quiet] made that Logger. Default: 1m. With -1 every failure is a line.
	LogInterval time.Duration `env:"LOG_INTERVAL"`
}

// Validate names every field of every package that cannot be used.
func (c *Config) Validate() error {
	check := configs.CheckOf("config: Config")
	check.Add(event.ValidateIdentifier("config: Config.Schema", c.Schema))
	check.AtLeast("IdleInTransaction", c.IdleInTransaction, time.Millisecond, "give 1ms or more, or -1 for the server's own")
	check.AtLeast("TCPUserTimeout", c.TCPUserTimeout, time.Second, "give 1s or more, or -1 for what the system does")
	check.AtLeast("DatabaseWait", c.DatabaseWait, time.Millisecond, "give 1ms or more, or -1 for an error at once")
	check.AtLeast("LogInterval", c.LogInterval, time.Second, "give 1s or more, or -1 for every failure")
	check.AtLeast("AuditRetention", c.AuditRetention, 24*time.Hour, "give 24h or more, or -1 to keep the audit for ever")
	check.Add(c.UoW.Validate(), c.Outbox.Validate(), c.Projector.Validate(), c.Inbox.Validate(), c.Consumer.Validate(), c.Idempotency.Validate())
	return check.Err()
}

// WithDefaults returns the configuration that is in effect: a copy of [Config.Shared] in which the fields that are zero have their defaults. Use it
// to show and compare settings, for example in a log line. Programs give oncebox.New the configuration as it is: an outbox.Config.Retention that is
// set is entered in the database, and the default is not.
func (c *Config) WithDefaults() Config {
	out := c.Shared()
	out.IdleInTransaction = cmp.Or(out.IdleInTransaction, idleInTransaction)
	out.TCPUserTimeout = cmp.Or(out.TCPUserTimeout, silence)
	out.LogInterval = cmp.Or(out.LogInterval, quietlog.Interval)
	out.AuditRetention = cmp.Or(out.AuditRetention, outbox.DefaultAuditRetention)
	out.Consumer, out.Idempotency = out.Consumer.WithDefaults(), out.Idempotency.WithDefaults()
	out.UoW, out.Outbox, out.Projector, out.Inbox = out.UoW.WithDefaults(), out.Outbox.WithDefaults(), out.Projector.WithDefaults(), out.Inbox.WithDefaults()
	return out
}

// Shared returns a copy in which the settings that packages share, such as Schema and Telemetry, are filled into every package that does not set
// its own.
func (c *Config) Shared() Config {
	out := *c
	out.share()
	return out
}

func (c *Config) share() {
	c.UoW.Registry = cmp.Or(c.UoW.Registry, event.NewRegistry())
	fill(&c.Outbox.Registry, c.UoW.Registry)
	fill(&c.Outbox.Source, c.UoW.Source)
	fill(&c.Outbox.TopicPrefix, c.UoW.TopicPrefix)
	fill(&c.Outbox.DefaultTenant, c.UoW.DefaultTenant)
	fill(&c.Idempotency.DefaultTenant, c.UoW.DefaultTenant)
	fill(&c.Outbox.MaxPayload, c.UoW.MaxPayload)
	fill(&c.Inbox.MaxPayload, c.UoW.MaxPayload)
	for _, schema := range []*string{&c.Outbox.Schema, &c.Inbox.Schema, &c.Idempotency.Schema} {
		fill(schema, c.Schema)
	}
	for _, pooler := range []*bool{&c.Outbox.Pooler, &c.Inbox.Pooler, &c.Idempotency.Pooler} {
		fill(pooler, c.Pooler)
	}
	for _, off := range []*bool{&c.Outbox.NoHistory, &c.Inbox.NoHistory} {
		fill(off, c.NoHistory)
	}
	for _, retention := range []*time.Duration{&c.Outbox.AuditRetention, &c.Inbox.AuditRetention, &c.Idempotency.AuditRetention} {
		fill(retention, c.AuditRetention)
	}
	for _, wait := range []*time.Duration{&c.Projector.DatabaseWait, &c.Inbox.DatabaseWait} {
		fill(wait, c.DatabaseWait)
	}
	if c.Telemetry.Logger != nil || c.LogInterval != 0 {
		c.Telemetry.Logger = Quiet(c.Telemetry.Logger, c.LogInterval) // before it is shared: what has one cause is counted by all packages together
	}
	for _, t := range []*telemetry.Config{
		&c.UoW.Telemetry, &c.Outbox.Telemetry, &c.Projector.Telemetry, &c.Inbox.Telemetry, &c.Consumer.Telemetry, &c.Idempotency.Telemetry,
	} {
		if *t = t.Or(c.Telemetry); t.Logger != nil {
			t.Logger = Quiet(t.Logger, c.LogInterval)
		}
	}
}

// fill sets a field that is zero.
func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
