package uow

import (
	"cmp"
	"math"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/configs"
	"github.com/oncebox/oncebox/internal/envelope"
	"github.com/oncebox/oncebox/retry"
	"github.com/oncebox/oncebox/telemetry"
)

// Config configures a [Manager]. The zero value is enough for units that emit no events.
type Config struct {
	// Registry has the event types of the service. A unit of work fails if it emits an event whose type is not registered. Required for events.
	Registry *event.Registry
	// Source is the name of this service, which each of its events carries. Required for events.
	Source string `env:"SOURCE"`
	// TopicPrefix is put before the name of each topic: of aggregates, of [Unit.Add] and [Unit.Schedule], and of consumers. With "test." the topic order
	// is test.order. A topic that begins with "/" gets no prefix: "/billing.invoice" is billing.invoice. Services that share events need the same
	// prefix, or topics that begin with "/". Default: "".
	TopicPrefix string `env:"TOPIC_PREFIX"`
	// DefaultTenantID is the tenant of events that are emitted in a context without a tenant. Default: "default".
	DefaultTenantID string `env:"DEFAULT_TENANT_ID"`
	// Topic returns the topic of an aggregate's event, to which TopicPrefix is then added. All events of one aggregate should have the same topic,
	// because brokers keep the order only within a topic. Default: the aggregate type.
	Topic func(event.Envelope) string
	// ValidateTopic checks the names of topics, in addition to event.ValidateTopic. If it returns an error for the topic of an event, the unit of work
	// fails. Default: the method ValidateTopic of the broker that is passed to oncebox.New (interface messaging.Naming). Without such a broker there is
	// no further check.
	ValidateTopic func(topic string) error
	// MaxPayload is the size of the largest payload of an event, in bytes. A unit of work with a larger event fails. Default: 1 MiB. With -1 there is no
	// limit.
	MaxPayload int `env:"MAX_PAYLOAD"`
	// MaxHandled is the largest number of events that the handlers of [On] may emit in one unit of work. A unit with more events fails. So two handlers
	// that cause each other's events do not run without end. In a unit of [WithNestedChecks] each outermost Do of the code has a count of its own.
	// Default: 1000. With -1 there is no limit.
	MaxHandled int `env:"MAX_HANDLED"`
	// Retry sets how often, and after which pauses, the function of a unit of work is run again after a failure.
	Retry RetryConfig `envPrefix:"UNIT_RETRY_"`
	// CommitTimeout is the longest time for COMMIT. If the events are sent in one round trip with COMMIT, it is the longest time for both. If the answer
	// to COMMIT is lost, the unit asks the database whether the transaction was committed, for up to CommitTimeout again. Default: 30s.
	CommitTimeout time.Duration `env:"COMMIT_TIMEOUT"`

	// Telemetry sets where logs, traces and metrics go. If the context of an event is in a trace, the trace gets a span for the creation of the event.
	// Default: slog.Default() and the global providers.
	Telemetry telemetry.Config
}

// RetryConfig sets whether, how often and after which pauses the function of a unit of work is run again in a new transaction.
type RetryConfig struct {
	// If reports whether the function of a unit of work is run again after an error. After [ErrCommitUnknown] and [ErrTransactionEnded] the function is
	// never run again, and If is not called. Default: [IsRetryable].
	If func(error) bool
	// MaxAttempts is how often the function of a unit of work is run at most, the first run included. Default: 5. With -1 the function is run once.
	MaxAttempts int `env:"MAX_ATTEMPTS"`
	// Policy sets the pauses between the runs of a function. Default: 10ms, up to 1s.
	retry.Policy
	// MaxElapsed is how long after the beginning of the first run a further run may begin. Default: 30s. With -1 there is no limit.
	MaxElapsed time.Duration `env:"MAX_ELAPSED"`
}

// Validate names every field that cannot be used. A nil Config is fine.
func (c *Config) Validate() error {
	if c == nil {
		return nil
	}
	check := configs.CheckOf("uow: Config")
	check.That(c.MaxPayload >= -1, "MaxPayload", c.MaxPayload, "give bytes, or -1 for no limit")
	check.That(c.MaxHandled >= -1, "MaxHandled", c.MaxHandled, "give a count, or -1 for no limit")
	check.That(c.Retry.MaxAttempts >= -1, "Retry.MaxAttempts", c.Retry.MaxAttempts, "give a count, or -1 for none")
	check.Add(c.Retry.Policy.Validate("uow: Config.Retry"))
	check.That(c.Retry.MaxElapsed >= -1, "Retry.MaxElapsed", c.Retry.MaxElapsed, "give a duration, or -1 for no limit")
	check.That(c.CommitTimeout >= 0, "CommitTimeout", c.CommitTimeout, "give a duration")
	check.Add(
		event.ValidateIdentifier("uow: Config.Source", c.Source),
		event.ValidateIdentifier("uow: Config.DefaultTenantID", c.DefaultTenantID),
		event.ValidateIdentifier("uow: Config.TopicPrefix", c.TopicPrefix))
	return check.Err()
}

// WithDefaults returns a copy in which the fields that are zero have their defaults. A nil Config counts as the zero one. A limit that is off (-1)
// becomes a number that is never reached.
func (c *Config) WithDefaults() Config {
	out := configs.Copy(c)
	out.Retry.Policy = out.Retry.Policy.Or(retry.Policy{Delay: 10 * time.Millisecond, MaxDelay: time.Second})
	out.Retry.MaxAttempts = cmp.Or(out.Retry.MaxAttempts, 5)
	out.Retry.MaxElapsed = cmp.Or(out.Retry.MaxElapsed, 30*time.Second)
	if out.Retry.MaxElapsed < 0 {
		out.Retry.MaxElapsed = math.MaxInt64
	}
	if out.Retry.If == nil {
		out.Retry.If = IsRetryable
	}
	out.CommitTimeout = cmp.Or(out.CommitTimeout, 30*time.Second)
	out.MaxHandled = cmp.Or(out.MaxHandled, 1000)
	if out.MaxHandled < 0 {
		out.MaxHandled = math.MaxInt
	}
	out.DefaultTenantID = cmp.Or(out.DefaultTenantID, "default")
	out.MaxPayload = cmp.Or(out.MaxPayload, envelope.DefaultMaxPayload)
	return out
}
