package memory

import (
	"cmp"

	"github.com/oncebox/oncebox/internal/configs"
	"github.com/oncebox/oncebox/telemetry"
)

// Config configures a [Broker], which keeps its messages in the memory of the process, for tests and examples. The zero value is ready.
type Config struct {
	// Partitions is the number of partitions of each topic. At most this number of consumers of a [messaging.Failover] subscription work at once.
	// Default: 4.
	Partitions int `env:"PARTITIONS"`
	// MaxMessageBytes is the size of the largest message that the broker in memory takes, in bytes: payload, key, metadata and identifiers together. It
	// refuses a larger message permanently, so that its event becomes a dead letter. Default: 5 MiB.
	MaxMessageBytes int `env:"MAX_MESSAGE_BYTES"`
	// Retain is the number of newest messages that each topic always keeps. Older messages are deleted after every subscription has acknowledged them. A
	// subscription that is made later does not get the deleted messages. Default: 0, all messages.
	Retain int `env:"RETAIN"`

	// Telemetry sets where logs, traces and metrics go. The log has a warning when messages are dropped that no subscription ever saw. A trace has a
	// span for each call of Publish. Default: that of the application, see [messaging.Observed], else slog.Default() and the global providers.
	Telemetry telemetry.Config
}

// Validate names every field that cannot be used. A nil Config is valid.
func (c *Config) Validate() error {
	d := c.WithDefaults()
	check := configs.CheckOf("memory: Config")
	check.That(d.Partitions >= 1, "Partitions", d.Partitions, "give a count of at least 1")
	check.That(d.MaxMessageBytes >= 1, "MaxMessageBytes", d.MaxMessageBytes, "give a number of bytes")
	check.That(d.Retain >= 0, "Retain", d.Retain, "give a count, or 0 for all messages")
	return check.Err()
}

// WithDefaults returns a copy in which unset fields have their defaults. A nil Config is the zero one.
func (c *Config) WithDefaults() Config {
	out := configs.Copy(c)
	out.Partitions = cmp.Or(out.Partitions, 4)
	out.MaxMessageBytes = cmp.Or(out.MaxMessageBytes, 5<<20)
	return out
}
