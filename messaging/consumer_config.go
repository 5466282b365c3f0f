package messaging

import (
	"cmp"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/internal/configs"
	"github.com/oncebox/oncebox/retry"
	"github.com/oncebox/oncebox/telemetry"
)

// ConsumerConfig configures a [Consumer]. The zero value is ready.
type ConsumerConfig struct {
	// Name is the name of the consumer in logs, spans and metrics, usually the name of the subscription. Default: "".
	Name string
	// Concurrency is the number of handlers that a consumer runs at once in one process. Messages of one ordering key are handled one after the other.
	// Default: 8.
	Concurrency int `env:"CONCURRENCY"`
	// BatchSize is the largest number of messages that one call of a [BatchHandler] gets. A batch has the messages that have arrived: the consumer does
	// not wait for more. Up to Concurrency batches are handled at once. Default: 1.
	BatchSize int `env:"BATCH_SIZE"`
	// Queue is the largest number of messages that a consumer holds in one process. When the queue is full, the consumer receives no further message.
	// The queue has the messages that are being handled, wait for a handler, wait behind another message of their ordering key, or wait for their next
	// try. So Queue limits the memory for messages, and the number of messages that the broker delivers again after a restart. Choose a much larger
	// number than Concurrency times BatchSize. A number below BatchSize is an error. Default: 64, and with BatchSize above 1 at least twice Concurrency
	// times BatchSize.
	Queue int `env:"QUEUE"`
	// Unordered allows messages of one ordering key to be handled at the same time. It is meant for [Shared] subscriptions. Default: false.
	Unordered bool
	// Retry sets the pauses between the tries of a message in this process. Later messages of the ordering key wait meanwhile. A handler that returns
	// [RetryAfter] sets its own pause. Default: 100ms, up to 30s.
	Retry retry.Policy `envPrefix:"RETRY_"`
	// DrainTimeout is how long a stopped consumer waits for its running handlers. Then it cancels the contexts of these handlers. Default: 30s. With -1
	// it cancels them at once.
	DrainTimeout time.Duration `env:"DRAIN_TIMEOUT"`
	// BacklogInterval is the interval at which the consumer asks the broker how many messages wait, for the metric oncebox.consumer.backlog. Default:
	// 20s. With -1 it never asks.
	BacklogInterval time.Duration `env:"BACKLOG_INTERVAL"`

	// Telemetry sets where logs, traces and metrics go. The log has a warning for every failed try, and a trace has a span for each. Default:
	// slog.Default() and the global providers.
	Telemetry telemetry.Config
}

// Validate names every field that cannot be used.
func (c *ConsumerConfig) Validate() error {
	check := configs.CheckOf("messaging: ConsumerConfig")
	check.That(c.Concurrency >= 0, "Concurrency", c.Concurrency, "give a count of at least 1")
	check.That(c.BatchSize >= 0, "BatchSize", c.BatchSize, "give a count of at least 1")
	check.That(c.Queue >= 0, "Queue", c.Queue, "give a count of at least 1")
	if c.Queue > 0 && c.Queue < c.BatchSize {
		check.Add(fmt.Errorf("messaging: ConsumerConfig.Queue is %d and ConsumerConfig.BatchSize %d: no batch would ever be full; "+
			"let Queue be 0, or twice the batches of all handlers", c.Queue, c.BatchSize))
	}
	check.Add(c.Retry.Validate("messaging: ConsumerConfig.Retry"))
	check.That(c.DrainTimeout >= -1, "DrainTimeout", c.DrainTimeout, "give a duration, or -1 to cancel at once")
	check.That(c.BacklogInterval >= -1, "BacklogInterval", c.BacklogInterval, "give a duration, or -1 for never")
	return check.Err()
}

// WithDefaults returns a copy in which unset fields have their defaults. A nil configuration is the zero value.
func (c *ConsumerConfig) WithDefaults() ConsumerConfig {
	out := configs.Copy(c)
	out.Concurrency = cmp.Or(out.Concurrency, 8)
	out.BatchSize = cmp.Or(out.BatchSize, 1)
	out.Retry = out.Retry.Or(retry.Policy{Delay: 100 * time.Millisecond, MaxDelay: 30 * time.Second})
	if out.Queue == 0 {
		out.Queue = 64
		if out.BatchSize > 1 {
			out.Queue = max(64, 2*out.BatchSize*out.Concurrency)
		}
	}
	out.DrainTimeout = cmp.Or(out.DrainTimeout, 30*time.Second)
	out.BacklogInterval = cmp.Or(out.BacklogInterval, 20*time.Second)
	return out
}
