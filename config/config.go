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

// Config configures a whole application. A field with the tag env:"SCHEMA" is read from the variable ONCEBOX_SCHEMA, and so on. docs/config.md lists
// all variables.
type Config struct {
	// DatabaseURL is the address of the PostgreSQL database to which [OpenDB] connects. Default: none, and OpenDB returns an error.
	DatabaseURL string `env:"DATABASE_URL"`
	// Schema is the schema of the database that has the tables of oncebox. Default: oncebox if current_schema() of a new connection is public, else that
	// schema.
	Schema string `env:"SCHEMA"`
	// Pooler must be true if a pooler in transaction mode, such as PgBouncer, stands between the program and the database. The program then uses no
	// prepared statements. Default: false.
	Pooler bool `env:"POOLER"`

	// IdleInTransaction is how long a session of the database may be idle within an open transaction. With -1 the setting of the server applies. After
	// IdleInTransaction PostgreSQL ends the session, and the transaction is rolled back. Without a limit, the session of a frozen process, or of a
	// machine that has vanished, keeps its locks for ever. Choose a longer time than any pause of a handler between two statements of its unit of work.
	// IdleInTransaction has no effect if Pooler is true, or if DatabaseURL sets idle_in_transaction_session_timeout. Default: 5m.
	IdleInTransaction time.Duration `env:"IDLE_IN_TRANSACTION"`

	// TCPUserTimeout is how long the database's host may leave sent data without an acknowledgement of TCP, at least 1s. With -1 the settings of the
	// operating system apply. After TCPUserTimeout the connection ends with an error. With the settings of Linux, a statement waits for about 15 minutes
	// if the host or the network has vanished. TCPUserTimeout does not limit how long a statement runs, because the host acknowledges data while the
	// statement runs. A proxy in front of the database acknowledges data even if the database has vanished. A new connection must be accepted within a
	// quarter of TCPUserTimeout. Its session then has to begin within TCPUserTimeout. If DatabaseURL has the parameter connect_timeout, that time
	// replaces both. Default: 20s.
	TCPUserTimeout time.Duration `env:"TCP_USER_TIMEOUT"`

	// DatabaseWait is how long a starting process waits for a database that is away, before it returns an error. With -1 it does not wait. A database is
	// away if its server does not answer, starts, recovers, shuts down, or has no connection left, or if the name of its host is unknown. If DatabaseURL
	// has target_session_attrs, the database is also away while no server takes writes. [OpenDB], [UseDB], [UsePool], App.Migrate, App.Run,
	// Projector.Run and Inbox.Run wait, each for up to DatabaseWait, and log that they wait. Other errors are returned at once, for example a wrong
	// password, certificate or database name, or a missing table. Default: 0, it waits until the context of the call ends.
	DatabaseWait time.Duration `env:"DATABASE_WAIT"`

	// RefusePool makes the pool refuse, with [uow.ErrPool], a statement that should run in a unit of work and was sent to the pool by mistake. Without
	// RefusePool the pool executes the statement outside of the unit: the statement stays committed if the unit is rolled back, and is executed again if
	// the unit is run again. The pool recognizes the statement by its context, which carries an open unit of this pool, or comes from a handler under a
	// lease (inbox.Leased). Use [uow.Outside] for a statement that is meant for the pool. A statement whose first argument is a pgx.QueryExecMode is not
	// refused. RefusePool needs a pool of [OpenDB]. With another pool, [UseDB] and [UsePool] return an error. The analyzer unitpool of the module
	// analysis finds many such statements without running the program. Default: false.
	RefusePool bool `env:"REFUSE_POOL"`

	// AuditRetention is how long the audit entries of outbox, inbox and idempotency keys are kept, at least 24h. Default: 9600h, which is 400 days.
	// With -1 audit entries are kept for ever.
	AuditRetention time.Duration `env:"AUDIT_RETENTION"`

	// NoHistory stops this process from writing the history of backlog, ages, rates and failures into the table oncebox_history. The console draws the
	// last 24 hours from this history. If NoHistory is false, one of all processes writes a row each minute. After two hours the rows of ten minutes
	// become one row. Default: false.
	NoHistory bool `env:"NO_HISTORY"`

	// UoW configures units of work. Its Registry, Source, DefaultTenantID and MaxPayload are the defaults of the other packages.
	UoW uow.Config
	// Outbox configures the tables of events that wait to be published.
	Outbox outbox.Config `envPrefix:"OUTBOX_"`
	// Projector configures the relay, which publishes the events of the outbox. Its variables share the prefix of Outbox.
	Projector projector.Config `envPrefix:"OUTBOX_"`
	// Inbox configures how consumers recognize messages that come again, and what happens to messages whose handlers fail.
	Inbox inbox.Config `envPrefix:"INBOX_"`
	// Consumer configures how consumers receive messages and call their handlers.
	Consumer messaging.ConsumerConfig `envPrefix:"CONSUMER_"`
	// Idempotency configures the stored answers to HTTP requests with an Idempotency-Key.
	Idempotency idempotency.Config `envPrefix:"IDEMPOTENCY_"`

	// Telemetry sets where logs, traces and metrics go, for every package whose own Telemetry is not set. Default: slog.Default() and the global
	// providers.
	Telemetry telemetry.Config
	// LogInterval is the time between two log lines about the same failure, at least 1s. The first failure is logged at once. If the failure repeats,
	// one line per LogInterval has the number of failures since the line before. LogInterval applies to the Logger of every package, except a Logger
	// that [Quiet] has made. Default: 1m. With -1 every failure is a line.
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
	fill(&c.Outbox.DefaultTenantID, c.UoW.DefaultTenantID)
	fill(&c.Idempotency.DefaultTenantID, c.UoW.DefaultTenantID)
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
