package inbox

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/oncebox/oncebox/messaging"
)

// Option changes one consumer.
type Option func(*settings)

// settings are the settings of one consumer. Settings about receiving have no effect on [Inbox.Wrap].
type settings struct {
	subscription messaging.Subscription
	receive      messaging.ConsumerConfig

	unordered, storesFirst, leased bool
	withoutUnit                    bool          // the handler does not use its unit, on purpose
	continueAfterDead              bool          // messages behind a dead letter do not wait
	maxInFlight                    int           // how many messages the consumer may have
	timeout                        time.Duration // of a try; negative: none
	retry                          RetryPolicy
	middleware                     []messaging.Middleware // around the handler
	handles                        bool                   // an option says how messages are handled, and not only how they are received
}

// handling makes an option about how messages are handled. For a read model such options are given to readmodel.New.
func handling(fn func(*settings)) Option {
	return func(s *settings) {
		s.handles = true
		fn(s)
	}
}

// Leased runs the handler under a lease instead of in a transaction, for handlers that call other systems: see step.Call and [Key]. It is for
// consumers of [Inbox.Consume]. [Inbox.WrapLeased] is the same for a handler that your own receive loop calls.
func Leased() Option { return handling(func(s *settings) { s.leased = true }) }

// WithoutUnit says that the handler does not use its unit of work, because it only counts or logs for example. Without this option the log
// has one warning about such a handler, because it may have used a pool of its own. A handler that calls another system is [Leased].
func WithoutUnit() Option { return handling(func(s *settings) { s.withoutUnit = true }) }

// StoreFirst stores messages, settles them at the broker, and handles them from the database, in [Inbox.RunParked]. It is for handlers so
// slow that the broker should not wait for them, and for bursts of messages. The order is kept. Without it the messages of one key with a
// slow handler wait in the consumer's queue until they fill it, and other keys get no place.
func StoreFirst() Option { return handling(func(s *settings) { s.storesFirst = true }) }

// HandlerTimeout is [Config.HandlerTimeout] for one consumer. 0: as configured.
func HandlerTimeout(d time.Duration) Option {
	return handling(func(s *settings) {
		if d != 0 {
			s.timeout = d
		}
	})
}

// Retry is [Config.Retry] for one consumer. Unset fields are taken from Config.
func Retry(p RetryPolicy) Option { return handling(func(s *settings) { s.retry = p.or(s.retry) }) }

// Use puts middleware around the handler of one consumer, inside of [Config.Middleware]. The first one is the outermost. It runs where the
// handler runs: in the unit that enters the message, so [uow.FromContext] gives it the transaction, or under the lease ([Leased]). It runs
// for parked and replayed messages too. It does not run for duplicates and for messages that are only stored.
//
// Where several messages are handled in one unit ([Batch]), it runs for each of them. The middleware of a bulk writer ([BatchFunc]) runs
// for each message too, around the one call: messages that it skips are left out of the call, it sees the result and the duration of the
// whole call, and values that it adds to the context do not reach the writer.
func Use(middleware ...messaging.Middleware) Option {
	return handling(func(s *settings) { s.middleware = append(s.middleware, middleware...) })
}

// ContinueAfterDead is [Config.ContinueAfterDead] for one consumer.
func ContinueAfterDead() Option { return handling(func(s *settings) { s.continueAfterDead = true }) }

// Unordered ignores the order within a key: no message waits for a failed message, or for another process that handles its key. A
// subscription of type [messaging.Shared] has no order, so [Inbox.Consume] sets Unordered for it.
func Unordered() Option { return handling(func(s *settings) { s.unordered = true }) }

// MaxInFlight is how many messages the consumer may have at once (its Queue), if that may be more than [Config.CrashGuard]. [Inbox.Consume]
// sets it.
func MaxInFlight(n int) Option { return handling(func(s *settings) { s.maxInFlight = n }) }

// OfTopic says which topic the handler is for, by its full name ([uow.Manager.Topic]). A consumer with several topics needs it, so that parked messages
// and replayed dead letters find their handler. [Inbox.Consume] sets it.
func OfTopic(topic string) Option {
	return handling(func(s *settings) { s.subscription.Topic = topic })
}

// Receiving sets how the consumer receives. [Inbox.Consume] sets the Name of cfg. [Concurrency] and [Batch], given after it, change one
// field of cfg. A bulk writer ([Inbox.ConsumeBatch]) gets up to 100 messages also if cfg has smaller batches.
func Receiving(cfg messaging.ConsumerConfig) Option {
	return func(s *settings) {
		cfg.BatchSize = max(cfg.BatchSize, s.receive.BatchSize)
		s.receive = cfg
	}
}

// Concurrency is how many messages, of different keys, are handled at once. Default: 8.
func Concurrency(n int) Option { return func(s *settings) { s.receive.Concurrency = n } }

// Batch handles up to n messages in one transaction: the messages that wait at that moment, of any keys, in their order. A batch that fails
// is handled again one by one, so order and guarantees are the same. It pays where a transaction costs more than the handler's work in it.
// Without a broker messages are handled one by one. Default: one.
func Batch(n int) Option { return func(s *settings) { s.receive.BatchSize = n } }

// Subscribed says how the instances of the consumer share the messages. Default: [messaging.Failover].
func Subscribed(t messaging.SubscriptionType) Option {
	return func(s *settings) { s.subscription.Type = t }
}

// Instance names this process among the instances of the consumer, stable over restarts, so that a restart moves as
// little as possible. Default: chosen by the broker's adapter.
func Instance(name string) Option { return func(s *settings) { s.subscription.Consumer = name } }

// OwnedBy names the service that the consumer belongs to: its source. A second service that uses the name by mistake, at the broker
// ([messaging.Subscription.Source]) or in the same database, is refused with a [*messaging.SourceError]. The database keeps the name
// until [consumers.Consumers.Forget]. Default: empty, it is not checked.
func OwnedBy(source string) Option { return func(s *settings) { s.subscription.Source = source } }

// complete sets the fields that follow from others.
func (s *settings) complete(topic, name string) error {
	s.subscription.Topic, s.subscription.Name, s.receive.Name = topic, name, name
	s.receive.Unordered = s.subscription.Type == messaging.Shared
	s.unordered = s.unordered || s.receive.Unordered
	if s.subscription.Queue == 0 {
		s.subscription.Queue = s.receive.Queue
	}
	if s.subscription.Queue == 0 && s.receive.BatchSize > 1 {
		s.subscription.Queue = max(64, 2*s.receive.BatchSize) // or there would never be a full batch to take
	}
	s.maxInFlight = max(s.maxInFlight, s.receive.WithDefaults().Queue)
	return errors.Join(s.subscription.Validate(), s.receive.Validate(), s.retry.validate("RetryPolicy"))
}

// settings returns what the inbox and the options say.
func (c *Config) settings(opts []Option) settings {
	s := settings{
		timeout: c.HandlerTimeout, retry: c.Retry, continueAfterDead: c.ContinueAfterDead, middleware: slices.Clone(c.Middleware),
	}
	for _, opt := range opts {
		opt(&s)
	}
	// Logs, traces and metrics of a consumer go where those of the inbox go, unless Receiving says otherwise.
	s.receive.Telemetry.Logger = cmp.Or(s.receive.Telemetry.Logger, c.Telemetry.Logger)
	if s.receive.Telemetry.TracerProvider == nil {
		s.receive.Telemetry.TracerProvider = c.Telemetry.TracerProvider
	}
	if s.receive.Telemetry.MeterProvider == nil {
		s.receive.Telemetry.MeterProvider = c.Telemetry.MeterProvider
	}
	return s
}
