package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/internal/publishing"
	"github.com/oncebox/oncebox/internal/quietlog"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/telemetry"
)

// Broker is a connection to RabbitMQ. All methods are safe for concurrent use.
type Broker struct {
	cfg       Config
	log       *slog.Logger
	telemetry *otelx.Later[publishing.Instruments]
	topology  topology

	// A broker with an alarm stops reading from the connections that publish, so consumers have a connection of their own.
	publisher, consumer *link

	// open is done when Close has waited long enough for calls that are under way.
	open  context.Context //nolint:containedctx // the life of the connection
	end   context.CancelFunc
	start *adapters.Start

	calls      adapters.Calls // of Publish, Subscribe and Declare
	background sync.WaitGroup // the links and the receivers
	senders    chan struct{}  // a token for each channel that publishes

	mu        sync.Mutex
	away      time.Time // since when the connection is lost, zero if it is open
	receivers map[*receiver]bool
	declared  map[subscriptionKey]messaging.Subscription
	doubted   map[string]bool // topics whose subscriptions may be gone
	joined    int
}

type subscriptionKey struct{ topic, name string }

// Connect connects to the broker and makes the subscriptions of cfg. If the broker cannot be reached, Connect returns and goes on in the background,
// for as long as it takes, so that a service can serve meanwhile. Until then, calls of Publish and Subscribe fail with [messaging.ErrBrokerDown] at
// their deadline. The log says when the waiting begins, and when it ends. With Config.Required Connect itself waits, for Config.ConnectTimeout.
//
// An error that waiting does not mend is returned at once: a configuration that cannot be used, a broker that refuses the credentials or the virtual
// host, a subscription that exists with other settings, a missing plugin.
func Connect(ctx context.Context, cfg *Config) (*Broker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := cfg.WithDefaults()
	addresses, err := c.addresses()
	if err != nil {
		return nil, err
	}
	settings, err := c.tls()
	if err != nil {
		return nil, err
	}
	b := &Broker{
		cfg: c, topology: topology{names: c.names(), make: c.Declare == Make, count: c.Queues},
		senders: make(chan struct{}, maxSenders), receivers: map[*receiver]bool{}, declared: map[subscriptionKey]messaging.Subscription{},
		doubted: map[string]bool{},
	}
	b.telemetry = otelx.NewLater(c.Telemetry, func(to telemetry.Config) *publishing.Instruments {
		return publishing.New(to, "messaging/rabbitmq", "rabbitmq")
	})
	b.log = quietlog.New(b.telemetry.Logger(), c.LogInterval)
	b.open, b.end = context.WithCancel(context.Background())
	d := &dialer{addresses: addresses, timeout: c.ConnectionTimeout, heartbeat: c.Heartbeat, tls: settings}
	b.publisher, b.consumer = newLink(c.Name+" publisher", d), newLink(c.Name+" consumer", d)
	b.consumer.opened, b.consumer.say = b.restore, b.report
	for _, s := range c.Subscriptions {
		b.declared[subscriptionKey{s.Topic, s.Name}] = s
	}
	b.start = adapters.NewStart(adapters.Greeting{
		Kind: title, URL: adapters.Redacted(c.URL), Setting: "Config.URL (ONCEBOX_RABBITMQ_URL)", Greet: b.greet, Lasts: lasts, Required: c.Required,
		Timeout: c.ConnectTimeout, Open: b.open, Log: b.log,
	})
	if err := b.start.Begin(ctx); err != nil {
		b.end()
		return nil, fmt.Errorf("rabbitmq: %w", err)
	}
	return b, nil
}

// Observe implements [messaging.Observed].
func (b *Broker) Observe(t telemetry.Config) { b.telemetry.Use(t) }

func (c *Config) names() names { return names{exchange: c.Exchange} }

// greet opens the first connection. From then on the links keep their connections open by themselves.
func (b *Broker) greet(ctx context.Context) error {
	s, err := b.consumer.open(ctx)
	if err != nil {
		return err
	}
	for l, s := range map[*link]*session{b.consumer: s, b.publisher: nil} {
		b.background.Go(func() {
			if last := l.keep(b.open, s); last != nil {
				_ = last.close(b.cfg.CloseTimeout) // the broker notices the end by itself
			}
		})
	}
	return nil
}

// enter begins a call that ends with leave.
func (b *Broker) enter(ctx context.Context, call string, limit time.Duration) (_ context.Context, leave func(), err error) {
	return b.calls.Begin(ctx, b.open, "rabbitmq: "+call, limit)
}

// lasts reports whether an error needs a person: the broker has answered, and refuses, or the two do not agree about TLS.
func lasts(err error) bool {
	_, isSource := errors.AsType[*messaging.SourceError](err)
	_, isInstallation := errors.AsType[*messaging.InstallationError](err)
	return isRefusal(err) || isSource || isInstallation || adapters.IsTLSFault(err)
}

// restore makes the subscriptions that this process knows, whenever a connection was opened: the broker may have lost them with its disk. Only the
// first connection fails if that is not possible.
func (b *Broker) restore(ctx context.Context, s *session) error {
	b.mu.Lock()
	subscriptions := slices.Collect(maps.Values(b.declared))
	b.mu.Unlock()
	if b.start.IsUnder() {
		for _, sub := range subscriptions {
			limited, cancel := context.WithTimeout(ctx, b.cfg.ConnectTimeout)
			err := b.topology.inspect(limited, s, sub)
			cancel()
			if err != nil {
				return unsubscribed(sub, err)
			}
		}
	}
	for _, sub := range subscriptions {
		limited, cancel := context.WithTimeout(ctx, b.cfg.ConnectTimeout)
		err := b.topology.declare(limited, s, sub)
		cancel()
		switch {
		case err == nil:
		case b.start.IsUnder() || !lasts(err):
			return unsubscribed(sub, err)
		default:
			b.log.ErrorContext(ctx, "oncebox: a subscription cannot be made again after a lost connection; RabbitMQ keeps no messages for it",
				"topic", sub.Topic, "subscription", sub.Name, "error", err)
		}
	}
	return nil
}

// report logs that the connection was lost, and that it is back.
func (b *Broker) report(err error) {
	b.mu.Lock()
	since := b.away
	switch {
	case err == nil:
		b.away = time.Time{}
	case since.IsZero():
		b.away = time.Now()
	}
	b.mu.Unlock()
	level, ctx := slog.LevelWarn, quietlog.Away(context.Background(), quietlog.Broker)
	switch {
	case b.open.Err() != nil:
		return
	case err == nil:
		b.log.Info("oncebox: the connection to RabbitMQ is open again", "url", adapters.Redacted(b.cfg.URL), "away", time.Since(since).Round(time.Millisecond))
		return
	case lasts(err):
		level = slog.LevelError // somebody has to act
	}
	b.log.Log(ctx, level, "oncebox: the connection to RabbitMQ is lost, so nothing is published or received; it is tried again until it succeeds",
		"url", adapters.Redacted(b.cfg.URL), "error", err)
}

// down returns a [messaging.ErrBrokerDown] with the call that failed.
func (b *Broker) down(call string, err error) error {
	return fmt.Errorf("%w: rabbitmq: %s: %s: %w", messaging.ErrBrokerDown, call, adapters.Redacted(b.cfg.URL), err)
}

// wait returns the connection of a link when the broker can be used. The error is a [messaging.ErrBrokerDown].
func (b *Broker) wait(ctx context.Context, l *link, call string) (*session, error) {
	if err := b.start.Wait(ctx, call); err != nil {
		return nil, err
	}
	s, err := l.wait(ctx)
	if err != nil {
		return nil, b.down(call, err)
	}
	return s, nil
}

// Close refuses new calls, waits for the calls under way, hands back the messages that receivers did not settle, and closes the connections.
// Receivers return [messaging.ErrClosed]. An error means that the broker did not confirm the end in time; it will notice the end by itself.
func (b *Broker) Close() error {
	if !b.start.Drain(&b.calls, b.end, b.cfg.CloseTimeout) {
		return nil
	}
	defer quietlog.Flush(b.log)
	var receivers sync.WaitGroup
	for _, r := range b.openReceivers() {
		receivers.Go(func() { _ = r.Close() }) // Close of a receiver returns no error
	}
	adapters.WaitFor(&receivers, b.cfg.CloseTimeout)
	b.end()
	b.start.End(b.cfg.CloseTimeout)
	if adapters.WaitFor(&b.background, b.cfg.CloseTimeout) {
		return nil
	}
	for _, l := range []*link{b.publisher, b.consumer} {
		if s, _, _ := l.state(); s != nil {
			s.link.sever()
		}
	}
	return fmt.Errorf("rabbitmq: close: the broker %s has not confirmed the end of the connection within %s", adapters.Redacted(b.cfg.URL), b.cfg.CloseTimeout)
}

// openReceivers returns a copy, because closing a receiver removes it from the map.
func (b *Broker) openReceivers() []*receiver {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.receivers))
}
