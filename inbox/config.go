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
	// Schema holds the tables. Default: the first one of the search_path that connections begin with.
	Schema string
	// Pooler says that a transaction-mode pooler stands before the database: no prepared statements. Default: false.
	Pooler bool
	// Retention is how long the inbox remembers that it has handled a message, at least 24h; KeepForever (-1): for ever. A copy that comes
	// later is handled again. So choose more than the time for which the broker may redeliver a message, and for which the sender's outbox
	// keeps events for a replay. Default: 240h.
	Retention time.Duration `env:"RETENTION"`
	// DeadRetention is how long dead letters are kept before Clean deletes them. Deleting frees their keys, as a discard does, and adds an
	// entry with their number to the audit. At least 24h; 0 and -1 keep them for ever. Default: 0.
	DeadRetention time.Duration `env:"DEAD_RETENTION"`
	// AuditRetention is how long the entries of the audit are kept. At least 24h; -1 keeps them for ever. Default: 9600h, which
	// is 400 days.
	AuditRetention time.Duration

	// Retry says how often, and for how long, a message is tried whose handler fails. The option [Retry] overrides it for one consumer.
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
	// OnDeadTimeout is the longest that a call of OnDead may take. The key of the message is locked meanwhile. Default: 2s.
	OnDeadTimeout time.Duration `env:"ON_DEAD_TIMEOUT"`
	// CrashGuard is the number of messages, after the start of a process, whose try is recorded before the handler runs. One of them may
	// have killed the process before this one. Its recorded tries make it a dead letter after RetryPolicy.MaxCrashes crashes. Choose the
	// number of messages that one consumer may have at once; [MaxInFlight] raises it to that. -1: off. Default: 128.
	CrashGuard int `env:"CRASH_GUARD"`
	// HandlerTimeout is the longest that one call of a handler may take, also a call with several messages ([BatchFunc]). A batch whose
	// handler gets one message at a time may take this long for each of them, in one transaction. When the time is over, the context of the
	// handler is cancelled, its work is undone, and the try counts as failed. [HandlerTimeout] overrides it for one consumer. -1: no limit.
	// Default: 5m.
	HandlerTimeout time.Duration `env:"HANDLER_TIMEOUT"`
	// LockTimeout is how long a message waits while another process handles a message of the same key, or a copy of this one, at least 1ms.
	// After that the message is postponed for 500 ms and its slot is freed, so that a process that hangs does not occupy the slots of
	// others. A postponement is not counted as a try. Default: 250ms.
	LockTimeout time.Duration `env:"LOCK_TIMEOUT"`
	// ParkedConcurrency is the number of keys with parked messages that one process works on at once, for each consumer. Default: 4.
	ParkedConcurrency int `env:"PARKED_CONCURRENCY"`
	// ParkedLease is how long a process may be silent that has taken a key with parked messages. After that another process takes the key.
	// At least 1s. Default: 30s.
	ParkedLease time.Duration `env:"PARKED_LEASE"`
	// LeaseTTL is how long a process may be silent that handles a message of [Inbox.WrapLeased]. After that another process takes the
	// message over. At least 1s. The lease is renewed each third of this time, so a handler may take longer. Default: 30s.
	LeaseTTL time.Duration `env:"LEASE_TTL"`
	// DrainTimeout is how long handlers of parked messages may go on after [Inbox.RunParked] was told to stop. Then their context is
	// cancelled; -1: it is cancelled at once. Default: 30s.
	DrainTimeout time.Duration `env:"DRAIN_TIMEOUT"`
	// PollInterval is how often a process looks for keys that others parked. Default: 1s.
	PollInterval time.Duration `env:"POLL_INTERVAL"`
	// DatabaseWait is how long [Inbox.Run] waits at its start for a database that cannot be reached. It matters where there is no broker;
	// -1: such a database is an error at once. Default: 0, for as long as the context lasts.
	DatabaseWait time.Duration
	// MaxPayload is the largest payload that ReplayEdited of package inbox/dead takes, in bytes; -1: no limit. Default: 1 MiB.
	MaxPayload int

	// Telemetry is where logs, traces and metrics go. The log has an error for every dead letter. The outcome of a message is noted on the span of the
	// consumer. Default: that of the manager, see [uow.Manager.Telemetry].
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
