package inbox

import (
	"cmp"
	"context"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/arrival"
	"github.com/oncebox/oncebox/internal/configs"
	"github.com/oncebox/oncebox/internal/envelope"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

const (
	// DefaultRetention is three days more than an outbox keeps what it sent.
	DefaultRetention = 10 * 24 * time.Hour
	// DefaultAuditRetention is how long the audit is kept.
	DefaultAuditRetention = 400 * 24 * time.Hour
	// KeepForever keeps entries, dead letters, or the audit, until somebody else removes them.
	KeepForever = time.Duration(-1)
)

// Config configures an [Inbox]. The zero value is ready.
type Config struct {
	// Schema is the schema of the database that has the tables of oncebox. Default: oncebox if current_schema() of a new connection is public, else that
	// schema.
	Schema string
	// Pooler must be true if a pooler in transaction mode stands between the program and the database. Prepared statements are not used then. Default: false.
	Pooler bool
	// NoHistory keeps no history of waiting, handled and failed messages, which the console draws. Default: false.
	NoHistory bool
	// Retention is how long the inbox recognizes copies of a message that it has handled, at least 24h. A copy that arrives after Retention is handled
	// again. With -1 (KeepForever) copies are recognized for ever. Retention must be longer than two other times: the time in which the broker may
	// deliver a message again, and the time for which the sender's outbox keeps published events, because they can be replayed. Default: 240h.
	Retention time.Duration `env:"RETENTION"`
	// DeadRetention is how long dead letters are kept before the cleaner deletes them, at least 24h. With 0 and -1 dead letters are kept for ever. After
	// the deletion of a dead letter the later messages of its ordering key are handled, as after a discard. The audit has an entry for each deletion,
	// with the number of deleted dead letters. Default: 0.
	DeadRetention time.Duration `env:"DEAD_RETENTION"`
	// AuditRetention is how long audit entries are kept, at least 24h. Default: 9600h, which is 400 days. With -1 audit entries are kept for ever.
	AuditRetention time.Duration

	// Retry sets how often, and for how long, a message is tried again after its handler has failed. The option [Retry] overrides it for one
	// consumer.
	Retry RetryPolicy `envPrefix:"RETRY_"`
	// Middleware is put around the handlers of all consumers. The first middleware is the outermost. The option [Use] adds middleware for one consumer,
	// inside of Config.Middleware. Default: none.
	Middleware []messaging.Middleware
	// ContinueAfterDead lets the later messages of an ordering key be handled after a message of the key has become a dead letter. The handlers of the
	// later messages then run although the dead letter was never handled, and a replay handles the dead letter out of order. The option
	// [ContinueAfterDead] applies to one consumer. Default: false, later messages wait until an operator replays or discards the dead letter.
	ContinueAfterDead bool `env:"CONTINUE_AFTER_DEAD"`
	// OnDead is called when a message becomes a dead letter, for example to emit an event about it. The unit of work that OnDead gets also makes the
	// dead letter. So what OnDead writes in this unit is committed with the dead letter, or not at all. OnDead should emit an event with [uow.Unit.Add]
	// and call no other system, because it may be called again: after the transaction has failed, or if the message is replayed and dies again. OnDead
	// must return when its context ends. If OnDead returns an error, panics, or takes longer than OnDeadTimeout, the dead letter is made without the
	// work of OnDead, and the log has an error. In two cases OnDead is not called. The first is an operator who makes a dead letter of a message that
	// waits for its next try (parked.Messages.GiveUp). The second is an event that OnDead has emitted with its context: such an event is marked
	// ([event.DeadLetterOf]), and if a consumer makes a dead letter of it, OnDead is not called, which prevents a loop. Default: none.
	OnDead func(ctx context.Context, u *uow.Unit, d DeadLetter) error
	// OnDeadTimeout is the longest time for one call of OnDead. Meanwhile other messages of the ordering key wait. Default: 2s.
	OnDeadTimeout time.Duration `env:"ON_DEAD_TIMEOUT"`
	// CrashGuard sets for how many messages after its start a consumer records the try before it calls the handler. The recorded tries find a message
	// that kills each process that handles it: after RetryPolicy.MaxCrashes recorded tries the message becomes a dead letter. After a restart the
	// message comes again among the messages that the consumer had received and not yet handled. So CrashGuard must be at least the largest number of
	// received and unhandled messages of a consumer. If [MaxInFlight] of a consumer is higher, that number is used. Default: 128. With -1 no try is
	// recorded before the handler is called.
	CrashGuard int `env:"CRASH_GUARD"`
	// HandlerTimeout is the longest time for one call of a handler, also for a call with several messages ([BatchFunc]). With -1 there is no limit.
	// After HandlerTimeout the context of the handler is cancelled, its work is rolled back, and the try counts as failed. If a transaction handles a
	// batch message by message, each message may take HandlerTimeout. The option of the same name sets the time for one consumer ([HandlerTimeout]).
	// Default: 5m.
	HandlerTimeout time.Duration `env:"HANDLER_TIMEOUT"`
	// LockTimeout is how long a message waits for another process that handles its ordering key or a copy of it, at least 1ms. After LockTimeout the
	// message is postponed for 500 ms, and the consumer handles other messages meanwhile. So a process that hangs does not stop the consumers of other
	// processes. A postponement does not count as a try. Default: 250ms.
	LockTimeout time.Duration `env:"LOCK_TIMEOUT"`
	// ParkedConcurrency is the number of ordering keys whose parked messages a process handles at once, for each consumer. Default: 4.
	ParkedConcurrency int `env:"PARKED_CONCURRENCY"`
	// ParkedLease is the length of the lease that a process takes on an ordering key to handle its parked messages, at least 1s. The process renews the
	// lease while it works. If the process dies, another process takes the key when the lease has ended. Default: 30s.
	ParkedLease time.Duration `env:"PARKED_LEASE"`
	// LeaseTTL is the length of the lease that a process takes on a message of [Inbox.WrapLeased], at least 1s. The process renews the lease after each
	// third of LeaseTTL, so a handler may take longer. If the process dies, another process takes the message when the lease has ended. Default: 30s.
	LeaseTTL time.Duration `env:"LEASE_TTL"`
	// DrainTimeout is how long [Inbox.RunParked] waits for running handlers after its context has ended. Then the contexts of these handlers are
	// cancelled. Default: 30s. With -1 they are cancelled at once.
	DrainTimeout time.Duration `env:"DRAIN_TIMEOUT"`
	// PollInterval is the interval at which a process asks the database for messages that other processes have parked. Default: 1s.
	PollInterval time.Duration `env:"POLL_INTERVAL"`
	// DatabaseWait is how long [Inbox.Run] waits at its start for a database that is away. It matters where there is no broker. Default: 0, until the context
	// ends. With -1 a database that is away is an error at once.
	DatabaseWait time.Duration
	// MaxPayload is the largest payload that ReplayEdited of package inbox/dead accepts, in bytes. Default: 1 MiB. With -1 there is no limit.
	MaxPayload int

	// Telemetry sets where logs, traces and metrics go. The log has an error for every dead letter. The span of the consumer has the outcome of a message.
	// Default: that of the manager, see [uow.Manager.Telemetry].
	Telemetry telemetry.Config
}

// Validate names every field that cannot be used.
func (c *Config) Validate() error {
	check := configs.CheckOf("inbox: Config")
	check.Add(event.ValidateIdentifier("inbox: Config.Schema", c.Schema))
	check.AtLeast("Retention", c.Retention, 24*time.Hour, "give 24h or more, or KeepForever")
	check.AtLeast("DeadRetention", c.DeadRetention, 24*time.Hour, "give 24h or more, or 0 to keep dead letters for ever")
	check.AtLeast("AuditRetention", c.AuditRetention, 24*time.Hour, "give 24h or more, or KeepForever")
	check.Add(c.Retry.validate("Config.Retry"))
	check.That(c.HandlerTimeout >= -1, "HandlerTimeout", c.HandlerTimeout, "give a duration, or -1 for no limit")
	check.That(c.DrainTimeout >= -1, "DrainTimeout", c.DrainTimeout, "give a duration, or -1 to cancel at once")
	check.That(c.CrashGuard >= -1, "CrashGuard", c.CrashGuard, "give a count, or -1 for none")
	check.That(c.OnDeadTimeout >= 0, "OnDeadTimeout", c.OnDeadTimeout, "give a duration")
	check.That(c.ParkedConcurrency >= 0, "ParkedConcurrency", c.ParkedConcurrency, "give a count of at least 1")
	check.That(c.MaxPayload >= -1, "MaxPayload", c.MaxPayload, "give bytes, or -1 for no limit")
	check.That(c.DatabaseWait >= arrival.Off, "DatabaseWait", c.DatabaseWait, "give a duration, or -1 for an error at once")
	check.That(c.PollInterval >= 0, "PollInterval", c.PollInterval, "give a duration")
	check.That(c.LockTimeout == 0 || c.LockTimeout >= time.Millisecond, "LockTimeout", c.LockTimeout, "give 1ms or more")
	check.That(c.ParkedLease == 0 || c.ParkedLease >= time.Second, "ParkedLease", c.ParkedLease, "give 1s or more")
	check.That(c.LeaseTTL == 0 || c.LeaseTTL >= time.Second, "LeaseTTL", c.LeaseTTL, "give 1s or more")
	return check.Err()
}

// WithDefaults returns a copy in which unset fields have their defaults. A nil Config is the zero one.
func (c *Config) WithDefaults() Config {
	out := configs.Copy(c)
	// Every value that can mean "off" is -1 and not 0, because 0 is the unset field here.
	out.Retention = cmp.Or(out.Retention, DefaultRetention)
	out.AuditRetention = cmp.Or(out.AuditRetention, DefaultAuditRetention)
	out.HandlerTimeout = cmp.Or(out.HandlerTimeout, 5*time.Minute)
	out.DrainTimeout = cmp.Or(out.DrainTimeout, 30*time.Second)
	out.OnDeadTimeout = cmp.Or(out.OnDeadTimeout, 2*time.Second)
	out.LockTimeout = cmp.Or(out.LockTimeout, 250*time.Millisecond)
	out.ParkedLease = cmp.Or(out.ParkedLease, 30*time.Second)
	out.LeaseTTL = cmp.Or(out.LeaseTTL, 30*time.Second)
	out.PollInterval = cmp.Or(out.PollInterval, time.Second)
	out.CrashGuard = cmp.Or(out.CrashGuard, 128)
	out.ParkedConcurrency = cmp.Or(out.ParkedConcurrency, 4)
	out.MaxPayload = cmp.Or(out.MaxPayload, envelope.DefaultMaxPayload)
	out.Retry = out.Retry.or(defaultRetry())
	return out
}
