package inbox

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/oncebox/oncebox/messaging"
)

// Option changes one consumer.
type Option func(*settings)

// settings are what is said of one consumer. Those that only say how it receives have no effect on [Inbox.Wrap].
type settings struct {
	subscription messaging.Subscription
	receive      messaging.ConsumerConfig

	unordered, storesFirst, leased bool
	withoutUnit                    bool          // the handler has nothing to do in its unit, and that is no mistake
	continueAfterDead              bool          // what is behind a dead letter does not wait
	maxInFlight                    int           // how many messages the consumer may have
	timeout                        time.Duration // of a try; negative: none
	retry                          RetryPolicy
	middleware                     []messaging.Middleware // around the handler
	handles                        bool                   // an option says how messages are handled, and not only how they are received
}

// handling is an option about how messages are handled, which a read model has of its own.
func handling(fn func(*settings)) Option {
	return func(s *settings) {
		s.handles = true
		fn(s)
	}
}

// Leased has the handler run under a lease instead of in a transaction, because it calls outside: see [Step] and [Key].
// It is the way for a consumer of [Inbox.Consume]. [Inbox.WrapLeased] is the same for a handler that a receive loop of your own calls.
func Leased() Option { return handling(func(s *settings) { s.leased = true }) }

// WithoutUnit says that the handler has nothing to do in its unit of work, because it counts or logs for example. Without it such a handler
// is told of in the log once, because it may have used a pool of its own. A handler that calls another system is [Leased].
func WithoutUnit() Option { return handling(func(s *settings) { s.withoutUnit = true }) }

// StoreFirst has messages stored, settled, and then handled from the database by [Inbox.RunParked]: for handlers that take so
// long that the broker should not wait for them, and for many messages that come at once. Their order is kept. Without it the
// messages of one key whose handler is slow, and does not fail, wait behind each other in the consumer's queue, until other keys
// get no place in it.
func StoreFirst() Option { return handling(func(s *settings) { s.storesFirst = true }) }

// HandlerTimeout is [Config.HandlerTimeout] for one consumer. 0: as configured.
func HandlerTimeout(d time.Duration) Option {
	return handling(func(s *settings) {
		if d != 0 {
			s.timeout = d
		}
	})
}

// Retry is [Config.Retry] for one consumer. What the policy does not say is as configured.
func Retry(p RetryPolicy) Option { return handling(func(s *settings) { s.retry = p.or(s.retry) }) }

// Use puts middleware around the handler of one consumer, within that of [Config.Middleware]. The first one is the outermost. It runs where the
// handler runs: in the unit that enters the message, so [uow.FromContext] gives it the transaction, or under the lease ([Leased]).
// Parked messages pass it, and so do replayed ones. Duplicates and messages that are only stored do not.
//
// Where several messages are handled in one unit ([Batch]), each passes it by itself. The middleware of a bulk writer ([BatchFunc]) runs for
// each message too, around the one call: those that it skips are not in the call, each sees what the call returns and how long it
// takes, and what it adds to the context does not reach the writer.
func Use(middleware ...messaging.Middleware) Option {
	return handling(func(s *settings) { s.middleware = append(s.middleware, middleware...) })
}

// ContinueAfterDead is [Config.ContinueAfterDead] for one consumer.
func ContinueAfterDead() Option { return handling(func(s *settings) { s.continueAfterDead = true }) }

// Unordered has messages of one key handled without regard to each other: nothing waits for a message that failed, or for
// another process that handles its key. A subscription of type [messaging.Shared] has no order to keep, so [Inbox.Consume] sets it there.
func Unordered() Option { return handling(func(s *settings) { s.unordered = true }) }

// MaxInFlight says how many messages the consumer may have at once, its Queue, if that may be more than [Config.CrashGuard].
// [Inbox.Consume] knows it.
func MaxInFlight(n int) Option { return handling(func(s *settings) { s.maxInFlight = n }) }

// OfTopic says which topic the handler is for. A consumer that has several must say so, because parked messages and dead
// letters have to find the one that they were meant for. [Inbox.Consume] knows it.
func OfTopic(topic string) Option {
	return handling(func(s *settings) { s.subscription.Topic = topic })
}

// Receiving is how the consumer receives. Its Name is set by [Inbox.Consume]. [Concurrency] and [Batch] behind it change a field of it. A bulk
// writer ([Inbox.ConsumeBatch]) gets its 100 messages also where cfg has smaller batches.
func Receiving(cfg messaging.ConsumerConfig) Option {
	return func(s *settings) {
		cfg.BatchSize = max(cfg.BatchSize, s.receive.BatchSize)
		s.receive = cfg
	}
}

// Concurrency is how many messages, of different keys, are handled at once. Default: 8.
func Concurrency(n int) Option { return func(s *settings) { s.receive.Concurrency = n } }

// Batch has up to n messages handled in one transaction: those that wait at that moment, of any keys, in their order. A
// batch that fails is handled again one by one, so order and guarantees are the same; it pays where a transaction costs more
// than what the handler does in it. Without a broker messages are handled one by one. Default: one.
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
// until [Inbox.Forget]. Default: empty, it is not checked.
func OwnedBy(source string) Option { return func(s *settings) { s.subscription.Source = source } }

// settings returns what the inbox and the options say.
func (i *Inbox) settings(opts []Option) settings {
	s := settings{
		timeout: i.cfg.HandlerTimeout, retry: i.cfg.Retry, continueAfterDead: i.cfg.ContinueAfterDead, middleware: slices.Clone(i.cfg.Middleware),
	}
	for _, opt := range opts {
		opt(&s)
	}
	// What a consumer does is seen where the inbox is seen, unless Receiving says otherwise.
	s.receive.Telemetry.Logger = cmp.Or(s.receive.Telemetry.Logger, i.cfg.Telemetry.Logger)
	if s.receive.Telemetry.TracerProvider == nil {
		s.receive.Telemetry.TracerProvider = i.cfg.Telemetry.TracerProvider
	}
	if s.receive.Telemetry.MeterProvider == nil {
		s.receive.Telemetry.MeterProvider = i.cfg.Telemetry.MeterProvider
	}
	return s
}

// complete fills in what follows from the rest.
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
	if err := errors.Join(s.subscription.Validate(), s.receive.Validate(), s.retry.validate("RetryPolicy")); err != nil {
		return fmt.Errorf("inbox: Consume(%q, %q): %w", topic, name, err)
	}
	return nil
}
