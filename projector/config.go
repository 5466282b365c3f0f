package projector

import (
	"cmp"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/arrival"
	"github.com/oncebox/oncebox/internal/configs"
	"github.com/oncebox/oncebox/projector/internal/progress"
	"github.com/oncebox/oncebox/retry"
	"github.com/oncebox/oncebox/telemetry"
)

// settleMargin is the time that stays for the settle between the end of a publication and the end of the lease.
const settleMargin = time.Second

// Config configures a [Projector].
type Config struct {
	// Name identifies this projector. No two projectors that are alive may have the same name. Default: host, process id and a random part.
	Name string
	// Group is the number of the lane group whose events this projector publishes. outbox.Store.Tenants().Move gives a tenant a lane group of its own.
	// Default: 0, the group of all tenants that have no group of their own.
	Group int16 `env:"GROUP"`
	// Workers is the number of workers of the projector. Workers publish at the same time: while one worker waits for the broker, another uses the
	// database. Each worker has a share of the lanes, which are the parts of the outbox. Default: 3.
	Workers int `env:"WORKERS"`
	// BatchSize is the approximate number of events in one batch. A worker fetches a batch from the database and publishes these events together.
	// Default: 1000.
	BatchSize int `env:"BATCH_SIZE"`
	// BatchBytes is the largest size of one batch, in bytes: the sum of its payloads. An event whose payload is larger than BatchBytes is published by
	// itself. The broker has to confirm a batch within PublishTimeout, so choose a smaller value if the connection to the broker is slow. Default:
	// 16777216, which is 16 MiB. With -1 there is no limit.
	BatchBytes int64 `env:"BATCH_BYTES"`

	// MaxRetryAttempts is the number of refusals by the broker after which an event becomes a dead letter. An event that the broker refuses permanently
	// ([messaging.Permanent]) becomes a dead letter at the first refusal. Default: 5. With -1 the event is tried again until the broker accepts it, or
	// an operator discards it.
	MaxRetryAttempts int `env:"MAX_RETRY_ATTEMPTS"`
	// MaxCrashes is the number of crashes after which an event becomes a dead letter. If two projectors have died while they published a batch, the next
	// projector publishes the events of the batch one by one. From then on, each projector that dies counts as a crash of the event that it was
	// publishing. Default: 10. With -1 there is no limit.
	MaxCrashes int `env:"MAX_CRASHES"`
	// ContinueAfterDead lists topics, or has "*" for all topics. If an event of such a topic becomes a dead letter, the later events of its ordering key
	// are still published. On other topics the later events wait until an operator replays or discards the dead letter. Default: none.
	ContinueAfterDead []string `env:"CONTINUE_AFTER_DEAD"`
	// BlockExpired makes the later events of an ordering key wait behind an event that expired before it was published. They wait until an operator
	// replays or discards the expired event. If BlockExpired is false, the later events are published without it. Default: false.
	BlockExpired bool `env:"BLOCK_EXPIRED"`
	// Retry sets the pauses between the tries of an event that the broker refuses. Default: 1m, up to 1h.
	Retry retry.Policy `envPrefix:"RETRY_"`
	// PublishTimeout is the time in which the broker has to confirm a batch. Events that the broker has not confirmed by then are published again.
	// Default: 5s.
	PublishTimeout time.Duration `env:"PUBLISH_TIMEOUT"`

	// Lease is how long after the death of a projector other projectors take over its lanes. Until then the events of these lanes are not published.
	// Default: 10s.
	Lease time.Duration `env:"LEASE"`
	// Renew is the interval at which a projector renews the leases of its lanes, and takes or gives back lanes until it has its share. Default: 3s.
	Renew time.Duration `env:"RENEW"`
	// SleepBusy is the first pause of a worker that has found nothing to publish. A NOTIFY about a commit ends the pause. Each further pause is twice as
	// long, up to SleepIdle. Default: 100ms.
	SleepBusy time.Duration `env:"SLEEP_BUSY"`
	// SleepIdle is the longest pause of a worker that finds nothing to publish. So an event whose writer sends no NOTIFY waits for up to SleepIdle.
	// Default: 2s.
	SleepIdle time.Duration `env:"SLEEP_IDLE"`
	// CleanInterval is the interval at which the projector makes and drops partitions of the outbox, and repairs the rows of its lanes. Default: 1h.
	// With -1 the projector does neither.
	CleanInterval time.Duration `env:"CLEAN_INTERVAL"`
	// DatabaseWait is how long [Projector.Run] waits at its start for a database that is away. Of several databases, one has to answer. Default: 0,
	// until the context ends. With -1 a database that is away is an error at once.
	DatabaseWait time.Duration

	// Telemetry sets where logs, traces and metrics go. A trace has a span for each publication. Default: that of the first store.
	Telemetry telemetry.Config
}

// Validate names every field that cannot be used. A nil Config is valid.
func (c *Config) Validate() error {
	d := c.WithDefaults()
	check := configs.CheckOf("projector: Config")
	for name, v := range map[string]time.Duration{
		"Retry.Delay": d.Retry.Delay, "Retry.MaxDelay": d.Retry.MaxDelay, "PublishTimeout": d.PublishTimeout,
		"Lease": d.Lease, "Renew": d.Renew, "SleepBusy": d.SleepBusy, "SleepIdle": d.SleepIdle,
	} {
		check.That(v > 0, name, v, "give a duration of more than 0")
	}
	check.That(d.BatchBytes >= -1, "BatchBytes", d.BatchBytes, "give bytes, or -1 for no bound")
	check.That(d.Workers >= 1, "Workers", d.Workers, "give a count of at least 1")
	check.That(d.BatchSize >= 1, "BatchSize", d.BatchSize, "give a count of at least 1")
	check.That(d.MaxRetryAttempts >= -1, "MaxRetryAttempts", d.MaxRetryAttempts, "give a count, or -1 for no end")
	check.That(d.MaxCrashes >= -1, "MaxCrashes", d.MaxCrashes, "give a count, or -1 for no end")
	check.That(d.CleanInterval >= -1, "CleanInterval", d.CleanInterval, "give a duration, or -1 for never")
	check.That(d.DatabaseWait >= arrival.Off, "DatabaseWait", d.DatabaseWait, "give a duration, or -1 for an error at once")
	check.That(d.Group >= 0, "Group", d.Group, "give the number of a group")
	// A batch that was begun right before a renewal failed must be settled before the lease ends, or its rows would be
	// published by two projectors.
	if d.PublishTimeout+settleMargin >= d.Lease-d.Renew {
		check.Add(fmt.Errorf("projector: Config.PublishTimeout (%s) + %s must be less than Config.Lease - Config.Renew (%s)",
			d.PublishTimeout, settleMargin, d.Lease-d.Renew))
	}
	check.Add(event.ValidateIdentifier("projector: Config.Name", d.Name))
	return check.Err()
}

// WithDefaults returns a copy in which every field that is zero has its default. A nil Config counts as the zero
// Config.
func (c *Config) WithDefaults() Config {
	out := configs.Copy(c)
	out.Workers = cmp.Or(out.Workers, 3)
	out.BatchSize = cmp.Or(out.BatchSize, 1000)
	out.BatchBytes = cmp.Or(out.BatchBytes, 16<<20)
	out.MaxRetryAttempts = cmp.Or(out.MaxRetryAttempts, 5)
	out.MaxCrashes = cmp.Or(out.MaxCrashes, 10)
	out.Retry = out.Retry.Or(retry.Policy{Delay: time.Minute, MaxDelay: time.Hour})
	out.PublishTimeout = cmp.Or(out.PublishTimeout, 5*time.Second)
	out.Lease = cmp.Or(out.Lease, 10*time.Second)
	out.Renew = cmp.Or(out.Renew, 3*time.Second)
	out.SleepBusy = cmp.Or(out.SleepBusy, 100*time.Millisecond)
	out.SleepIdle = cmp.Or(out.SleepIdle, 2*time.Second)
	out.CleanInterval = cmp.Or(out.CleanInterval, time.Hour)
	return out
}

// batchBytes returns BatchBytes in the form of the store, where 0 means no bound.
func (c *Config) batchBytes() int64 { return max(c.BatchBytes, 0) }

// rules returns the settings that decide about rows that cannot be published.
func (c *Config) rules() *progress.Rules {
	return &progress.Rules{
		MaxRetryAttempts: c.MaxRetryAttempts, MaxCrashes: c.MaxCrashes, Retry: c.Retry,
		ContinueAfterDead: c.ContinueAfterDead, BlockExpired: c.BlockExpired,
	}
}

// pauses has the waiting times of the relay that are not settings. Tests use shorter ones.
type pauses struct {
	loop   retry.Policy // of a loop, after a step that failed
	topic  retry.Policy // of a topic in trouble, until one of its rows is tried
	silent retry.Policy // of a worker, after a call to the broker without a receipt

	shortcut time.Duration // the time that a mark waits for open transactions before fetches and searches take a shortcut

	observe time.Duration // the interval at which the state of an outbox is read for the gauges; 0: the default of leader.Reader
}

func defaultPauses() pauses {
	return pauses{
		loop:   retry.Policy{Delay: 100 * time.Millisecond, MaxDelay: 2 * time.Second},
		topic:  retry.Policy{Delay: 500 * time.Millisecond, MaxDelay: 30 * time.Second},
		silent: retry.Policy{Delay: time.Second, MaxDelay: 15 * time.Second},

		shortcut: time.Second,
	}
}
