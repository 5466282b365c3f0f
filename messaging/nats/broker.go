package nats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/internal/publishing"
	"github.com/oncebox/oncebox/internal/quietlog"
	"github.com/oncebox/oncebox/messaging/nats/internal/fetch"
	"github.com/oncebox/oncebox/messaging/nats/internal/session"
	"github.com/oncebox/oncebox/messaging/nats/internal/streams"
	"github.com/oncebox/oncebox/telemetry"
)

// Broker is a connection to NATS. All methods are safe for concurrent use.
type Broker struct {
	streams.Names

	cfg       Config
	log       *slog.Logger
	telemetry *otelx.Later[publishing.Instruments]
	start     *adapters.Start
	calls     adapters.Calls

	// These are there when the server was reached once, see start.
	session *session.Session
	keeper  *streams.Keeper

	// open is done when Close has waited long enough for calls that are under way.
	open context.Context //nolint:containedctx // the life of the connection
	end  context.CancelFunc

	mu        sync.Mutex
	receivers map[*fetch.Receiver]bool
	joined    int
}

// Connect connects to the server and makes the topics and subscriptions of cfg. If the server cannot be reached, Connect returns and goes on in the
// background, for as long as it takes, so that a service can serve meanwhile. Until then, calls of Publish and Subscribe fail with
// [messaging.ErrBrokerDown] at their deadline. The log says when the waiting begins, and when it ends. With Config.Required Connect itself waits, for
// Config.ConnectTimeout.
//
// An error that waiting does not mend is returned at once: a configuration that cannot be used, a server that refuses the credentials or has no
// JetStream, a stream whose settings break the guarantees.
func Connect(ctx context.Context, cfg *Config) (*Broker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := cfg.WithDefaults()
	b := &Broker{Names: c.names(), cfg: c, receivers: map[*fetch.Receiver]bool{}}
	b.telemetry = otelx.NewLater(c.Telemetry, func(to telemetry.Config) *publishing.Instruments {
		return publishing.New(to, "messaging/nats", "nats")
	})
	b.log = quietlog.New(b.telemetry.Logger(), c.LogInterval)
	b.open, b.end = context.WithCancel(context.Background())
	b.start = adapters.NewStart(adapters.Greeting{
		Kind: title, URL: adapters.Redacted(c.URL), Setting: "Config.URL (ONCEBOX_NATS_URL)", Greet: b.greet, Lasts: lasts,
		Required: c.Required, Timeout: c.ConnectTimeout, Open: b.open, Log: b.log,
	})
	if err := b.start.Begin(ctx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// greet connects, and makes the topics and subscriptions of Config.
func (b *Broker) greet(ctx context.Context) error {
	if err := b.dial(); err != nil {
		return err
	}
	if err := b.session.CheckServer(ctx); err != nil {
		return err
	}
	return b.declare(ctx, b.cfg.Topics, b.cfg.Subscriptions)
}

// dial opens the connection, if it is not open yet.
func (b *Broker) dial() error {
	if b.session != nil {
		return nil
	}
	options, err := b.cfg.options()
	if err != nil {
		return err
	}
	s, err := session.Dial(session.Config{
		URL: b.cfg.URL, Options: options, Domain: b.cfg.Domain, Timeout: b.cfg.OperationTimeout, Log: b.log,
	})
	if err != nil {
		return fmt.Errorf("%s: %w", adapters.Redacted(b.cfg.URL), err)
	}
	b.session = s
	b.keeper = streams.NewKeeper(streams.Config{
		OnlyChecks: b.cfg.Declare == Check, Partitions: b.cfg.Partitions, Replicas: b.cfg.Replicas, MaxAge: b.cfg.MaxAge,
		DuplicateWindow: b.cfg.DuplicateWindow, TakeoverTimeout: b.cfg.TakeoverTimeout, MaxBytes: b.cfg.MaxBytes,
	}, b.Names, s)
	return nil
}

// Observe implements [messaging.Observed].
func (b *Broker) Observe(t telemetry.Config) { b.telemetry.Use(t) }

// Close refuses new calls, waits for the calls under way, hands back the messages that receivers did not settle, and closes the connection.
// Receivers return [messaging.ErrClosed].
func (b *Broker) Close() error {
	if !b.start.Drain(&b.calls, b.end, b.cfg.CloseTimeout) {
		return nil
	}
	defer quietlog.Flush(b.log)
	var closing sync.WaitGroup
	for _, r := range b.openReceivers() {
		closing.Go(func() { _ = r.Close() }) // it returns no error
	}
	ended := adapters.WaitFor(&closing, b.cfg.CloseTimeout)
	b.end()
	ended = b.start.End(b.cfg.CloseTimeout) && ended
	if b.session != nil {
		b.session.Conn.Close()
	}
	if !ended {
		return fmt.Errorf("nats: close: %s has not confirmed the end within %s", adapters.Redacted(b.cfg.URL), b.cfg.CloseTimeout)
	}
	return nil
}

// openReceivers returns a copy, because closing a receiver removes it from the map.
func (b *Broker) openReceivers() []*fetch.Receiver {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.receivers))
}
