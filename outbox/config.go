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
	// Schema is the schema of the database that has the tables of oncebox. Default: oncebox if current_schema() of a new connection is public, else that
	// schema.
	Schema string
	// Pooler must be true if a pooler in transaction mode stands between the program and the database. Prepared statements are not used then. Default:
	// false.
	Pooler bool
	// PollOnly makes relays look for new events only at intervals (projector.Config.SleepIdle). If PollOnly is false, a commit also wakes the relays of
	// other processes at once: the program that writes events sends NOTIFY, and each relay LISTENs on a connection of its own. A relay whose Pooler is
	// true does not LISTEN. Default: false.
	PollOnly bool `env:"POLL_ONLY"`
	// NoHistory keeps no history of backlog, age, rates and failures, which the console draws. Default: false.
	NoHistory bool
	// Deployment is the name of the installation to which the database belongs, such as "production". The name prevents relays on a copy of the
	// database, for example in a test system, from publishing the events a second time. The first relay with a name stores the name in the database, as
	// soon as no relay without a name is alive. From then on only relays with the stored name publish. Store.Upkeep().TakeOwnership stores another name.
	// Default: none, and the relay publishes only from a database without a stored name.
	Deployment string `env:"DEPLOYMENT"`
	// Retention is how long published rows are kept, in whole days, at least 24h. Retention is stored in the database, and all processes use the stored
	// time. If processes have different settings, the longest time is stored, and processes with another setting log a warning at their start. To
	// shorten the time, call Store.Upkeep().SetRetention. The constant NoRetention deletes rows as soon as they are published. Default: 168h, or the
	// time that is stored in the database. With -1 published rows are kept for ever.
	Retention time.Duration `env:"RETENTION"`
	// DeadRetention is how long dead letters are kept before the cleaner deletes them, at least 24h. With 0 and -1 dead letters are kept for ever. After
	// the deletion of a dead letter the later events of its ordering key are published, as after a discard. The audit has an entry for each deletion,
	// with the number of deleted dead letters. Default: 0.
	DeadRetention time.Duration `env:"DEAD_RETENTION"`
	// AuditRetention is how long audit entries are kept, at least 24h. Default: 9600h, which is 400 days. With -1 audit entries are kept for ever.
	AuditRetention time.Duration
	// DedupRetention is how long the key of [event.WithDedupKey] is remembered, at least 1h. While a key is remembered, a second event with the key is
	// not stored. After that the event is stored as a new event. The time begins with the first event, or with the time for which a delayed event was
	// scheduled. Default: 168h. With -1 the key is remembered for ever.
	DedupRetention time.Duration `env:"DEDUP_RETENTION"`
	// BeforeDrop is called before the published rows of a day are deleted, to archive them. One process at a time calls BeforeDrop, and the call may
	// take hours. If BeforeDrop returns an error, the rows stay, and the cleaner calls BeforeDrop again at its next run. The log then has a warning, and
	// the metric oncebox.outbox.partitions_kept counts the failure. BeforeDrop is also called again for the same day if the deletion fails. So an
	// archive that is not written through Partition.DB must accept a day twice. After a process with BeforeDrop has run, processes without BeforeDrop
	// delete no rows, until Store.Upkeep().SetRetention is called. Rows that NoRetention deletes are not archived. Default: none.
	BeforeDrop func(ctx context.Context, p Partition) error

	// OnDead is called when an event becomes a dead letter, for example to emit an event about it. The dead letter is made in the transaction tx. So
	// what OnDead writes in tx is committed with the dead letter, or not at all. OnDead should emit an event with [Store.Add] and call no other system,
	// because OnDead may be called again: after the transaction has failed, or if the event is replayed and dies again. OnDead must return when ctx
	// ends. If OnDead returns an error, panics, or takes longer than OnDeadTimeout, the dead letter is made without the work of OnDead, and the log has
	// an error. An event that OnDead adds with ctx is marked ([event.DeadLetterOf]). If the marked event becomes a dead letter, OnDead is not called,
	// which prevents a loop. Default: none.
	OnDead func(ctx context.Context, tx bun.Tx, d DeadLetter) error
	// OnDeadTimeout is the longest time for the calls of OnDead for all events of a batch that become dead letters. A worker of the relay waits for
	// these calls before it goes on. Default: 2s.
	OnDeadTimeout time.Duration `env:"ON_DEAD_TIMEOUT"`

	// Registry has the event types of the service, for [Store.Add]. Required for payloads that are an event.Event.
	Registry *event.Registry
	// Source is the name of this service in the events of [Store.Add]. Required for Add.
	Source string
	// TopicPrefix is put before the topics of [Store.Add], see uow.Config.TopicPrefix. Default: "".
	TopicPrefix string
	// DefaultTenantID is the tenant of events of [Store.Add] whose context has none. Default: "default".
	DefaultTenantID string
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
		event.ValidateIdentifier("outbox: Config.DefaultTenantID", c.DefaultTenantID))
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
	out.DefaultTenantID = cmp.Or(out.DefaultTenantID, "default")
	out.MaxPayload = cmp.Or(out.MaxPayload, envelope.DefaultMaxPayload)
	return out
}
