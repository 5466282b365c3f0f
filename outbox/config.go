package outbox

import (
	"cmp"
	"context"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/configs"
	"github.com/oncebox/oncebox/internal/envelope"
	"github.com/oncebox/oncebox/outbox/dead"
	"github.com/oncebox/oncebox/outbox/upkeep"
	"github.com/oncebox/oncebox/telemetry"
)

// DeadLetter is an event that was given up, as [Config.OnDead] gets it.
type DeadLetter = dead.Letter

// Partition is a day of published rows that is about to be dropped, as [Config.BeforeDrop] gets it.
type Partition = upkeep.Partition

// Config configures a [Store].
type Config struct {
	// Schema is the database schema of the tables. Default: the first one of the search_path that connections begin with.
	Schema string
	// Pooler must be true if a transaction-mode pooler stands between the program and the database. Prepared statements are not used then. Default:
	// false.
	Pooler bool
	// PollOnly makes relays find new events by polling alone. If it is false, a commit wakes the relays of other processes: the writer sends NOTIFY,
	// and each relay has a connection of its own on which it LISTENs. A store with Pooler does not LISTEN either. Default: false.
	PollOnly bool `env:"POLL_ONLY"`
	// NoHistory keeps no history of backlog, age, rates and failures, which the console draws. Default: false.
	NoHistory bool
	// Deployment is the name of the installation that the database belongs to, such as "production". It prevents a restored copy of the database
	// from publishing its events a second time. The first relay with a name writes it into the database, as soon as no relay without a name is
	// alive. From then on relays with another name, or with none, do not publish its events until Store.Upkeep().TakeOwnership is called. Default:
	// none, which a database without a name does not mind.
	Deployment string `env:"DEPLOYMENT"`
	// Retention is how long published rows are kept, in whole days. It is entered in the database, and all processes use the value there. If
	// processes have different settings, the longest one counts, and the others log a warning at their start; Store.Upkeep().SetRetention makes it
	// shorter. Default: the database's, and 168h if no process has set one. NoRetention deletes rows when they are published. With -1 they are kept for
	// ever.
	Retention time.Duration `env:"RETENTION"`
	// DeadRetention is how long dead letters are kept, at least 24h. Then Clean deletes them. The deletion frees their keys, as a discard does, and
	// leaves entries in the audit with their number. Default: 0. With 0 and -1 they are kept for ever.
	DeadRetention time.Duration `env:"DEAD_RETENTION"`
	// AuditRetention is how long audit entries are kept, at least 24h. Default: 9600h, which is 400 days. With -1 they are kept for ever.
	AuditRetention time.Duration
	// DedupRetention is how long a producer's key ([event.WithDedupKey]) is remembered after its first event, at least 1h. Default: 168h. With -1 it
	// is remembered for ever.
	DedupRetention time.Duration `env:"DEDUP_RETENTION"`
	// BeforeDrop is called before a day of published rows is dropped, to archive it. It is called by one process at a time and may take hours. If it
	// returns an error, the day stays, and the next Clean tries again; a warning and the metric oncebox.outbox.partitions_kept report it. It is
	// called again for the same day if the drop itself fails, so an archive outside of Partition.DB must accept a day twice. Once a process has had
	// a BeforeDrop, processes without one drop nothing, see Store.Upkeep().SetRetention. It is not called for rows that NoRetention deletes.
	// Default: none.
	BeforeDrop func(ctx context.Context, p Partition) error

	// OnDead is called for each event that becomes a dead letter, by the process that gives it up, for a chat message or a ticket. What it does in
	// tx is committed together with the dead letter, or not at all: announce the dead letter with [Store.Add], and call no other system from here.
	// It may be called again if the transaction fails, and it is called again if the event is replayed and dies again. If it returns an error,
	// panics, or takes longer than OnDeadTimeout, the dead letter is made without it and an error is logged. It must return when ctx ends. Events
	// that are added under ctx carry [event.DeadLetterOf]; if they die, OnDead is not called for them. Default: none.
	OnDead func(ctx context.Context, tx bun.Tx, d DeadLetter) error
	// OnDeadTimeout is the longest time for all calls of OnDead for events that die together. A worker of the relay waits for them. Default: 2s.
	OnDeadTimeout time.Duration `env:"ON_DEAD_TIMEOUT"`

	// Registry has the event types of the service, for [Store.Add]. Required for payloads that are an event.Event.
	Registry *event.Registry
	// Source is the name of this service in the events of [Store.Add]. Required for Add.
	Source string
	// TopicPrefix is put before the topics of [Store.Add], see uow.Config.TopicPrefix. Default: "".
	TopicPrefix string
	// DefaultTenant is the tenant of events of [Store.Add] whose context has none. Default: "default".
	DefaultTenant string
	// ValidateTopic checks the name of a topic by the broker's own rule, after event.ValidateTopic. If it refuses the topic, [Store.Add] returns the
	// error. Default: that of the broker that oncebox.New is given (messaging.Naming), and else none.
	ValidateTopic func(topic string) error
	// MaxPayload is the largest payload of [Store.Add], in bytes. Default: 1 MiB. With -1 there is no limit.
	MaxPayload int

	// Telemetry sets where logs, traces and metrics go. If the context of an event is in a trace, the trace gets a span for the creation of the
	// event. Default: slog.Default() and the global providers.
	Telemetry telemetry.Config
}

const (
	// DefaultRetention is the default of [Config.Retention].
	DefaultRetention = upkeep.DefaultRetention
	// DefaultAuditRetention is the default of [Config.AuditRetention].
	DefaultAuditRetention = 400 * 24 * time.Hour
	// DefaultDedupRetention is the default of [Config.DedupRetention].
	DefaultDedupRetention = 7 * 24 * time.Hour
	// NoRetention deletes rows when they are published.
	NoRetention = upkeep.NoRetention
	// KeepForever keeps published rows, dead letters, or the audit, until somebody else removes them. Of published rows each day is a partition that
	// each fetch looks into: with a year of them a fetch of one lane takes 1.6 ms and not 0.2. Keep weeks, and archive the rest in [Config.BeforeDrop].
	KeepForever = upkeep.KeepForever
)

// Validate names every field that cannot be used.
func (c *Config) Validate() error {
	check := configs.CheckOf("outbox: Config")
	check.That(c.Retention == NoRetention || c.Retention == KeepForever || c.Retention == 0 || c.Retention >= 24*time.Hour,
		"Retention", c.Retention, "give 24h or more, NoRetention or KeepForever")
	check.AtLeast("DeadRetention", c.DeadRetention, 24*time.Hour, "give 24h or more, or 0 to keep dead letters for ever")
	check.AtLeast("AuditRetention", c.AuditRetention, 24*time.Hour, "give 24h or more, or -1 to keep the audit for ever")
	check.AtLeast("DedupRetention", c.DedupRetention, time.Hour, "give 1h or more, or -1 to remember keys for ever")
	check.That(c.OnDeadTimeout >= 0, "OnDeadTimeout", c.OnDeadTimeout, "give a duration")
	check.That(c.MaxPayload >= -1, "MaxPayload", c.MaxPayload, "give bytes, or -1 for no limit")
	check.Add(
		event.ValidateIdentifier("outbox: Config.Schema", c.Schema),
		event.ValidateIdentifier("outbox: Config.Deployment", c.Deployment),
		event.ValidateIdentifier("outbox: Config.Source", c.Source),
		event.ValidateIdentifier("outbox: Config.TopicPrefix", c.TopicPrefix),
		event.ValidateIdentifier("outbox: Config.DefaultTenant", c.DefaultTenant))
	return check.Err()
}

// WithDefaults returns a copy in which the fields that say nothing have their defaults. A nil Config is the zero one. [NewStore] wants the configuration
// as it is: a Retention that is set is entered in the database, and the default is not.
func (c *Config) WithDefaults() Config {
	out := configs.Copy(c)
	out.Retention = cmp.Or(out.Retention, DefaultRetention)
	out.AuditRetention = cmp.Or(out.AuditRetention, DefaultAuditRetention)
	out.DedupRetention = cmp.Or(out.DedupRetention, DefaultDedupRetention)
	out.OnDeadTimeout = cmp.Or(out.OnDeadTimeout, 2*time.Second)
	out.DefaultTenant = cmp.Or(out.DefaultTenant, "default")
	out.MaxPayload = cmp.Or(out.MaxPayload, envelope.DefaultMaxPayload)
	return out
}
