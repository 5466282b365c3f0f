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
	// Schema is the schema of the database that has the tables of oncebox. Default: oncebox, or the first schema of the search_path of new
	// connections, if that schema is not public.
	Schema string
	// Pooler must be true if a pooler in transaction mode stands between the program and the database. Prepared statements are not used then. Default: false.
	Pooler bool
	// NoHistory keeps no history of waiting, handled and failed messages, which the console draws. Default: false.
	NoHistory bool
	// Retention is how long the inbox recognizes copies of a message that it has handled, at least 24h. A copy that arrives later is handled again. With
	// -1 (KeepForever) copies are recognized for ever. Choose a longer Retention than the time in which the broker may deliver a message again, and than
	// the time for which the outbox of the sender keeps published events for a replay. Default: 240h.
	Retention time.Duration `env:"RETENTION"`
	// DeadRetention is how long dead letters are kept before the cleaner deletes them, at least 24h. With 0 and -1 dead letters are kept for ever. The
	// deletion of a dead letter lets the later messages of its ordering key go on, as a discard does. The audit has an entry for each deletion, with the
	// number of dead letters. Default: 0.
	DeadRetention time.Duration `env:"DEAD_RETENTION"`
	// AuditRetention is how long audit entries are kept, at least 24h. Default: 9600h, which is 400 days. With -1 audit entries are kept for ever.
	AuditRetention time.Duration

	// Retry sets how often, and for how long, a message is tried again after its handler has failed. The option [Retry] overrides it for one
	// consumer.
	Retry RetryPolicy `envPrefix:"RETRY_"`
	// Middleware wraps the handlers of all consumers. The first middleware is the outermost. The option [Use] adds middleware for one consumer, inside of
	// these. Default: none.
	Middleware []messaging.Middleware
	// ContinueAfterDead lets the later messages of an ordering key be handled after a message of the key has become a dead letter. The handlers of the later
	// messages then do not see the effects of the dead letter, and a replayed dead letter is handled out of order. The option [ContinueAfterDead] sets the
	// same for one consumer. Default: false, later messages wait until an operator replays or discards the dead letter.
	ContinueAfterDead bool `env:"CONTINUE_AFTER_DEAD"`
	// OnDead is called when a message becomes a dead letter, for example to open a ticket. What OnDead does in the unit of work u is committed together with
	// the dead letter, or not at all. So emit an event with [uow.Unit.Add], and call no other system. OnDead may be called again if the transaction fails, and
	// if the message is replayed and dies again. OnDead must return when ctx ends. If OnDead returns an error, panics, or takes longer than OnDeadTimeout, the
	// dead letter is made without the work of OnDead, and the log has an error. OnDead is not called for a message that an operator gives up (package
	// inbox/parked). To prevent a loop, an event that OnDead emits with ctx is marked ([event.DeadLetterOf]), and OnDead is not called if it dies. Default: none.
	OnDead func(ctx context.Context, u *uow.Unit, d DeadLetter) error
	// OnDeadTimeout is the longest time for one call of OnDead. Meanwhile other messages of the ordering key wait. Default: 2s.
	OnDeadTimeout time.Duration `env:"ON_DEAD_TIMEOUT"`
	// CrashGuard is the number of messages, after the start of a process, for which a try is recorded before the handler runs. These records find a
	// message that kills each process that handles it: the message becomes a dead letter after RetryPolicy.MaxCrashes recorded tries. Set CrashGuard to
	// the largest number of messages that a consumer may have received and not yet handled. A higher [MaxInFlight] of a consumer is used instead.
	// Default: 128. With -1 no try is recorded in advance.
	CrashGuard int `env:"CRASH_GUARD"`
	// HandlerTimeout is the longest time for one call of a handler, also for a call with several messages ([BatchFunc]). With -1 there is no limit. When
	// HandlerTimeout is over, the context of the handler is cancelled, the work of the handler is rolled back, and the try counts as failed. If a batch is
	// handled message by message in one transaction, each message may take this long. The option [HandlerTimeout] sets the time for one consumer. Default: 5m.
	HandlerTimeout time.Duration `env:"HANDLER_TIMEOUT"`
	// LockTimeout is how long a message waits, at least 1ms, while another process handles a message of the same ordering key or a copy of this message. If
	// the other process takes longer than LockTimeout, the message is postponed for 500 ms, and the consumer handles other messages meanwhile. So a process
	// that hangs does not stop the consumers of other processes. A postponement does not count as a try. Default: 250ms.
	LockTimeout time.Duration `env:"LOCK_TIMEOUT"`
	// ParkedConcurrency is the number of ordering keys with parked messages that one process handles at once, for each consumer. Default: 4.
	ParkedConcurrency int `env:"PARKED_CONCURRENCY"`
	// ParkedLease is the length of the lease of a process on an ordering key whose parked messages it handles, at least 1s. The process renews the lease
	// while it works. If the process dies, another process takes the key after this time. Default: 30s.
	ParkedLease time.Duration `env:"PARKED_LEASE"`
	// LeaseTTL is the length of the lease of a process on a message that it handles with [Inbox.WrapLeased], at least 1s. The process renews the lease
	// each third of this time, so a handler may take longer. If the process dies, another process takes the message after this time. Default: 30s.
	LeaseTTL time.Duration `env:"LEASE_TTL"`
	// DrainTimeout is how long [Inbox.RunParked] waits for its handlers after its context has ended. If a handler of a parked message runs longer, its
	// own context is cancelled. Default: 30s. With -1 the contexts are cancelled at once.
	DrainTimeout time.Duration `env:"DRAIN_TIMEOUT"`
	// PollInterval is the interval at which a process asks the database for ordering keys whose messages other processes have parked. Default: 1s.
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
