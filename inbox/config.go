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
	// Schema is the database schema of the tables. Default: the first one of the search_path that connections begin with.
	Schema string
	// Pooler must be true if a transaction-mode pooler stands between the program and the database. Prepared statements are not used then. Default:
	// false.
	Pooler bool
	// NoHistory keeps no history of waiting, handled and failed messages, which the console draws. Default: false.
	NoHistory bool
	// Retention is how long the inbox remembers that it has handled a message, at least 24h. A copy that comes later is handled again. So choose
	// more than the time for which the broker may redeliver a message, and for which the sender's outbox keeps events for a replay. Default: 240h.
	// With -1 (KeepForever) messages are remembered for ever.
	Retention time.Duration `env:"RETENTION"`
	// DeadRetention is how long dead letters are kept, at least 24h. Then Clean deletes them. The deletion frees their keys, as a discard does, and
	// leaves entries in the audit with their number. Default: 0. With 0 and -1 they are kept for ever.
	DeadRetention time.Duration `env:"DEAD_RETENTION"`
	// AuditRetention is how long audit entries are kept, at least 24h. Default: 9600h, which is 400 days. With -1 they are kept for ever.
	AuditRetention time.Duration

	// Retry sets how often, and for how long, a message is tried whose handler fails. The option [Retry] overrides it for one consumer.
	Retry RetryPolicy
	// Middleware wraps the handlers of all consumers; the first one is the outermost. The option [Use] adds middleware for one consumer,
	// inside of this. Default: none.
	Middleware []messaging.Middleware
	// ContinueAfterDead lets the later messages of a key go on when one of them becomes a dead letter. Their handlers then see a gap, and a
	// replayed dead letter comes out of order. The option [ContinueAfterDead] sets it for one consumer. Default: false, they wait until
	// somebody replays or discards it.
	ContinueAfterDead bool `env:"CONTINUE_AFTER_DEAD"`
	// OnDead is called for each message that becomes a dead letter, by the process that gives it up, for a chat message or a ticket. What
	// it does in u commits together with the dead letter, or not at all: announce the letter with [uow.Unit.Add], and call no other system
	// from here. A transaction that fails may call it again, and so does a message that is replayed and becomes a dead letter again. If it
	// returns an error, panics, or takes longer than OnDeadTimeout, the dead letter is made without it and an error is logged. It must
	// return when ctx ends. Events that are emitted under ctx carry [event.DeadLetterOf]; if one of them becomes a dead letter, OnDead is
	// not called for it, nor is it for a message that an operator gives up (package inbox/parked). Default: none.
	OnDead func(ctx context.Context, u *uow.Unit, d DeadLetter) error
	// OnDeadTimeout is the longest time for one call of OnDead. The key of the message is locked meanwhile. Default: 2s.
	OnDeadTimeout time.Duration `env:"ON_DEAD_TIMEOUT"`
	// CrashGuard is the number of messages, after the start of a process, whose try is recorded before the handler runs. One of them may have killed
	// the process before this one. Its recorded tries make it a dead letter after RetryPolicy.MaxCrashes crashes. Choose the number of messages that
	// one consumer may have at once; [MaxInFlight] raises it to that. Default: 128. With -1 no try is recorded in advance.
	CrashGuard int `env:"CRASH_GUARD"`
	// HandlerTimeout is the longest time for one call of a handler, also for a call with several messages ([BatchFunc]). A batch whose handler gets
	// one message at a time may take this long for each of them, in one transaction. When the time is over, the context of the handler is cancelled,
	// its work is undone, and the try counts as failed. [HandlerTimeout] overrides it for one consumer. Default: 5m. With -1 there is no limit.
	HandlerTimeout time.Duration `env:"HANDLER_TIMEOUT"`
	// LockTimeout is how long a message waits while another process handles a message of the same key, or a copy of this one, at least 1ms. After
	// that the message is postponed for 500 ms and its slot is freed, so that a process that hangs does not occupy the slots of others. A
	// postponement is not counted as a try. Default: 250ms.
	LockTimeout time.Duration `env:"LOCK_TIMEOUT"`
	// ParkedConcurrency is the number of keys with parked messages that one process works on at once, for each consumer. Default: 4.
	ParkedConcurrency int `env:"PARKED_CONCURRENCY"`
	// ParkedLease is how long a process that has taken a key with parked messages may be silent, at least 1s. After that another process takes the
	// key. Default: 30s.
	ParkedLease time.Duration `env:"PARKED_LEASE"`
	// LeaseTTL is how long a process that handles a message of [Inbox.WrapLeased] may be silent, at least 1s. After that another process takes the
	// message over. The lease is renewed each third of this time, so a handler may take longer. Default: 30s.
	LeaseTTL time.Duration `env:"LEASE_TTL"`
	// DrainTimeout is how long handlers of parked messages may go on after [Inbox.RunParked] was told to stop. Then their context is cancelled.
	// Default: 30s. With -1 it is cancelled at once.
	DrainTimeout time.Duration `env:"DRAIN_TIMEOUT"`
	// PollInterval is the interval at which a process looks for keys that other processes have parked. Default: 1s.
	PollInterval time.Duration `env:"POLL_INTERVAL"`
	// DatabaseWait is how long [Inbox.Run] waits at its start for a database that cannot be reached. It matters where there is no broker. Default:
	// 0, for as long as the context lasts. With -1 such a database is an error at once.
	DatabaseWait time.Duration
	// MaxPayload is the largest payload that ReplayEdited of package inbox/dead accepts, in bytes. Default: 1 MiB. With -1 there is no limit.
	MaxPayload int

	// Telemetry sets where logs, traces and metrics go. The log has an error for every dead letter. The span of the consumer has the outcome of a
	// message. Default: that of the manager, see [uow.Manager.Telemetry].
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
