package pulsar

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"
	pulsarlog "github.com/apache/pulsar-client-go/pulsar/log"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/internal/quietlog"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/answer"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/topics"
	"github.com/oncebox/oncebox/telemetry"
)

// Broker is a connection to Pulsar. All methods are safe for concurrent use.
type Broker struct {
	cfg       Config
	log       *slog.Logger
	telemetry *otelx.Later[instruments]
	client    pulsarclient.Client
	keeper    *topics.Keeper
	greeter   *greeter
	start     *adapters.Start
	calls     adapters.Calls

	// open is done when Close has waited long enough for calls that are under way.
	open context.Context //nolint:containedctx // the life of the connection
	end  context.CancelFunc

	background sync.WaitGroup // calls of Pulsar's client that cannot be cancelled

	mu        sync.Mutex
	topics    map[string]*topic
	receivers map[*receiver]bool
	joined    int
	introduce map[string]string // properties of new producers, see Introduce
}

// Introduce adds properties to all producers that are made from now on: the service that they publish for, and the database that its events come
// from. The broker shows them, so that an operator can find two databases that publish for one service by mistake. [oncebox.App] calls it.
//
// [oncebox.App]: https://pkg.go.dev/github.com/oncebox/oncebox#App
func (b *Broker) Introduce(source, installation string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.introduce = topics.Properties(messaging.Subscription{Source: source, Installation: installation})
}

// introduction returns the properties of a new producer.
func (b *Broker) introduction() map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.introduce)
}

// Connect connects to the broker and makes the topics and subscriptions of cfg. If the broker cannot be reached, Connect returns and goes
// on in the background, for as long as it takes, so that a service can serve meanwhile. Until then, calls of Publish and Subscribe fail
// with [messaging.ErrBrokerDown] at their deadline. The log says when the waiting begins, and when it ends. With Config.Required Connect
// itself waits, for Config.ConnectTimeout.
//
// An error that waiting does not mend is returned at once: a configuration that cannot be used, a broker that refuses the credentials.
func Connect(ctx context.Context, cfg *Config) (*Broker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := cfg.WithDefaults()
	b := &Broker{cfg: c, topics: map[string]*topic{}, receivers: map[*receiver]bool{}}
	b.telemetry = otelx.NewLater(b.cfg.Telemetry, newInstruments)
	b.log = quietlog.New(b.telemetry.Logger(), c.LogInterval)
	b.open, b.end = context.WithCancel(context.Background())
	b.greeter = &greeter{broker: b}
	b.start = adapters.NewStart(adapters.Greeting{
		Kind: title, URL: adapters.Redacted(c.URL), Setting: "Config.URL (ONCEBOX_PULSAR_URL)", Greet: b.greeter.greet, Lasts: answer.Lasts,
		Required: c.Required, Timeout: c.ConnectTimeout, Open: b.open, Log: b.log,
	})
	if err := b.connect(ctx); err != nil {
		// Connect does not wait for Close: a request that the broker does not answer takes long to end.
		go func() { _ = b.Close() }() // err goes to the caller already
		return nil, err
	}
	return b, nil
}

// connect checks what a person can get wrong in the configuration, and then lets start try to reach the broker.
func (b *Broker) connect(ctx context.Context) error {
	admin, err := topics.NewAdmin(b.cfg.keeper())
	if err != nil {
		return err
	}
	if b.cfg.TokenFile != "" { // a missing token file would later look like a broker that does not answer
		if _, err := os.ReadFile(b.cfg.TokenFile); err != nil {
			return fmt.Errorf("pulsar: Config.TokenFile (ONCEBOX_PULSAR_TOKEN_FILE): %w", err)
		}
	}
	log := discreet{Handler: b.log.Handler(), waiting: b.start.IsUnder, refused: b.greeter.isRefused, users: b.users}
	if b.client, err = pulsarclient.NewClient(clientOptions(&b.cfg, log)); err != nil {
		return fmt.Errorf("pulsar: connect: %w", err)
	}
	b.keeper = topics.NewKeeper(*b.cfg.keeper(), admin, topics.Connection{
		Client: b.client, Open: b.open, Background: &b.background, Log: b.log,
		Unwatched: func(ctx context.Context, topic string) { b.telemetry.Instruments().unwatched(ctx, topic) },
	})
	if err := b.start.Begin(ctx); err != nil {
		return fmt.Errorf("pulsar: %w", err)
	}
	return nil
}

// clientOptions leaves reconnecting, batching and logging to the client as far as its defaults keep the guarantees.
func clientOptions(c *Config, log slog.Handler) pulsarclient.ClientOptions {
	o := pulsarclient.ClientOptions{
		URL:                        c.URL,
		ConnectionTimeout:          c.ConnectionTimeout,
		OperationTimeout:           c.OperationTimeout,
		KeepAliveInterval:          c.KeepAliveInterval,
		Logger:                     pulsarlog.NewLoggerWithSlog(slog.New(log)),
		MetricsRegisterer:          nowhere{},
		MemoryLimitBytes:           -1, // off: messages that the client loses would count for ever, and callers hold the payloads anyway
		TLSTrustCertsFilePath:      c.TLSTrustCerts,
		TLSAllowInsecureConnection: c.TLSAllowInsecure,
		TLSValidateHostname:        !c.TLSAllowInsecure,
	}
	switch {
	case c.Token != "":
		o.Authentication = pulsarclient.NewAuthenticationToken(c.Token)
	case c.TokenFile != "":
		o.Authentication = pulsarclient.NewAuthenticationTokenFromFile(c.TokenFile)
	case c.TLSCert != "":
		o.Authentication = pulsarclient.NewAuthenticationTLS(c.TLSCert, c.TLSKey)
	}
	return o
}

// Observe implements [messaging.Observed].
func (b *Broker) Observe(t telemetry.Config) { b.telemetry.Use(t) }

// Title returns what operators call the broker, see messaging.Titled.
func (*Broker) Title() string { return title }

// Close refuses new calls, waits for the calls under way, hands back the messages that receivers did not settle, and closes the connection.
// Receivers return [messaging.ErrClosed]. An error means that the broker did not confirm the end in time; it will notice the end by itself.
func (b *Broker) Close() error {
	// Producers must not be closed while somebody sends with them: the client panics.
	if !b.start.Drain(&b.calls, b.end, b.cfg.CloseTimeout) {
		return nil
	}
	defer quietlog.Flush(b.log)
	b.end()

	var closing sync.WaitGroup
	closing.Go(func() {
		for _, r := range b.openReceivers() {
			_ = r.Close() // Close of a receiver returns no error
		}
		// The start and background calls must end before: after the client is closed they would open connections that are never closed.
		b.start.End(b.cfg.CloseTimeout / 2)
		adapters.WaitFor(&b.background, b.cfg.CloseTimeout/2)
		if b.client != nil {
			b.client.Close()
		}
		b.background.Wait()
	})
	ended := adapters.WaitFor(&closing, b.cfg.CloseTimeout)
	if b.keeper != nil {
		b.keeper.Admin.Close()
	}
	if !ended {
		return fmt.Errorf("pulsar: close: the broker %s has not confirmed the end of the connection within %s",
			adapters.Redacted(b.cfg.URL), b.cfg.CloseTimeout)
	}
	return nil
}

// openReceivers returns a copy, because closing a receiver removes it from the map.
func (b *Broker) openReceivers() []*receiver {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.receivers))
}
