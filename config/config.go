package config

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/arrival"
	"github.com/oncebox/oncebox/internal/quietlog"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/projector"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

// Config configures a whole application. The environment variables of the fields are those of the tags, with the
// prefix ONCEBOX_; docs/config.md lists them.
type Config struct {
	// DatabaseURL is where PostgreSQL is, for [OpenDB]. Default: none, OpenDB needs one.
	DatabaseURL string `env:"DATABASE_URL"`
	// PulsarURL is where Pulsar is, for programs that choose their broker by it. Default: none.
	PulsarURL string `env:"PULSAR_URL"`
	// Schema holds the tables. Default: the first one of the search_path that connections begin with.
	Schema string `env:"SCHEMA"`
	// Pooler says that a transaction-mode pooler stands before the database. Default: false.
	Pooler bool `env:"POOLER"`

	// IdleInTransaction is after how long PostgreSQL ends a session that does nothing within a transaction: a process that is
	// frozen, or whose machine has vanished, would keep the locks of its keys and rows for ever. It must be longer than what a
	// handler does between two statements of its unit. -1: what the server is set to. A pool behind a Pooler, and a URL that has
	// idle_in_transaction_session_timeout, are left as they are. Default: 5m.
	IdleInTransaction time.Duration `env:"IDLE_IN_TRANSACTION"`

	// TCPUserTimeout is after how long without a word a connection to the database is given up: the host that has vanished, or
	// the network, never says so, and a statement would wait for about 15 minutes. A new connection has a quarter of it until the host
	// accepts, and all of it until the session has begun, unless the URL has connect_timeout. It ends no statement that takes
	// long: a host that lives answers for it. A proxy that lives answers for a host that does not. At least 1s; -1: what the
	// system does. Default: 20s.
	TCPUserTimeout time.Duration `env:"TCP_USER_TIMEOUT"`

	// DatabaseWait is for how long a process that starts waits for a database that is away: nobody answers, the name of its host is unknown,
	// it recovers or shuts down, it has no connection left, or, with target_session_attrs, no server takes writes yet. It bounds each of
	// [OpenDB], [UseDB], [UsePool], App.Migrate, App.Run, Projector.Run and Inbox.Run, which log that they wait. What waiting does not mend is
	// an error at once: a wrong password, certificate or name of a database, and tables that are missing. -1: a database that is away is an
	// error at once, too. Default: 0, for as long as the context lasts.
	DatabaseWait time.Duration `env:"DATABASE_WAIT"`

	// RefusePool has the pool refuse a statement that is sent to it where a unit of work is meant, with [uow.ErrPool]: its context carries an open
	// unit of this pool, or is that of a handler that runs under a lease (inbox.Leased). Such a statement is committed by itself,
	// and done again when the unit is. [uow.Outside] is for those that are meant. Statements with another context are not seen, nor those
	// whose first argument is a pgx.QueryExecMode. It is for [OpenDB]: the connections of a pool that the service opens itself are not ours, and
	// [UseDB] and [UsePool] return an error. The analyzer unitpool of the module analysis finds many of them without running anything. Default: false.
	RefusePool bool `env:"REFUSE_POOL"`

	// AuditRetention is how long the entries of the audit are kept, of outbox, inbox and idempotency keys. At least 24h; -1 keeps them for ever.
	// Default: 9600h, which is 400 days.
	AuditRetention time.Duration `env:"AUDIT_RETENTION"`

	// UoW also holds what all writers share: Registry, Source, DefaultTenant, MaxPayload.
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

	// Telemetry is where logs, traces and metrics go, for every package whose own Telemetry does not say it. Default: slog.Default() and the global
	// providers.
	Telemetry telemetry.Config
	// LogInterval is how often the log has a line of what fails again and again, with how often it did: see [Quiet]. It is for the Logger of each package
	// that is none of Quiet's already. At least 1s; -1: every failure is a line. Default: 1m.
	LogInterval time.Duration `env:"LOG_INTERVAL"`
}

// Validate names every field of every package that cannot be used.
func (c *Config) Validate() error {
	return errors.Join(
		event.ValidateIdentifier("config: Config.Schema", c.Schema), c.validateIdle(), c.validateSilence(), c.validateWait(),
		c.validateLog(), c.validateAudit(),
		c.UoW.Validate(), c.Outbox.Validate(), c.Projector.Validate(), c.Inbox.Validate(), c.Consumer.Validate(),
		c.Idempotency.Validate(),
	)
}

func (c *Config) validateIdle() error {
	if c.IdleInTransaction == 0 || c.IdleInTransaction == -1 || c.IdleInTransaction >= time.Millisecond {
		return nil
	}
	return fmt.Errorf("config: Config.IdleInTransaction is %s: give 1ms or more, or -1 for the server's own", c.IdleInTransaction)
}

func (c *Config) validateSilence() error {
	if c.TCPUserTimeout == 0 || c.TCPUserTimeout == -1 || c.TCPUserTimeout >= time.Second {
		return nil
	}
	return fmt.Errorf("config: Config.TCPUserTimeout is %s: give 1s or more, or -1 for what the system does", c.TCPUserTimeout)
}

func (c *Config) validateAudit() error {
	if c.AuditRetention == 0 || c.AuditRetention == -1 || c.AuditRetention >= 24*time.Hour {
		return nil
	}
	return fmt.Errorf("config: Config.AuditRetention is %s: give 24h or more, or -1 to keep the audit for ever", c.AuditRetention)
}

func (c *Config) validateWait() error {
	if c.DatabaseWait == 0 || c.DatabaseWait == arrival.Off || c.DatabaseWait >= time.Millisecond {
		return nil
	}
	return fmt.Errorf("config: Config.DatabaseWait is %s: give 1ms or more, or -1 for an error at once", c.DatabaseWait)
}

// WithDefaults returns the configuration that is in effect: a copy of [Config.Shared] in which the fields that say nothing have their
// defaults. It is for showing and comparing settings, for example in a log line. Programs give oncebox.New the configuration as it is: an
// outbox.Config.Retention that is set is entered in the database, and the default is not.
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

// Shared returns a copy in which what is said once at the top has reached every package that says nothing else.
func (c *Config) Shared() Config {
	out := *c
	out.share()
	return out
}

func (c *Config) share() {
	if c.UoW.Registry == nil {
		c.UoW.Registry = event.NewRegistry()
	}
	fill(&c.Outbox.Registry, c.UoW.Registry)
	fill(&c.Outbox.Source, c.UoW.Source)
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
