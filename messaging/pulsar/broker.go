package pulsar

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"sync"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"
	pulsarlog "github.com/apache/pulsar-client-go/pulsar/log"

	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/internal/quietlog"
	"github.com/oncebox/oncebox/messaging"
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
	start     *start

	// open ends when Close has waited long enough for the calls that are under way.
	open context.Context //nolint:containedctx // the life of the connection
	end  context.CancelFunc

	calls      sync.WaitGroup // of Publish and Subscribe
	background sync.WaitGroup // what the client does for us and cannot be told to stop

	mu        sync.Mutex
	closed    bool
	topics    map[string]*topic
	receivers map[*receiver]bool
	joined    int
	introduce map[string]string // properties of producers
}

// Introduce has producers from now on say which service they publish for, and which database its events come from, as properties that the broker
// shows. Two databases that publish for one service by mistake are found by them. It is for [oncebox.App].
//
// [oncebox.App]: https://pkg.go.dev/github.com/oncebox/oncebox#App
func (b *Broker) Introduce(source, installation string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.introduce = topics.Properties(messaging.Subscription{Source: source, Installation: installation})
}

// introduction are the properties of a new producer.
func (b *Broker) introduction() map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.introduce)
}

// Connect connects to the broker and makes what is declared in cfg. A broker that is away is waited for in the background,
// for as long as it takes, so that a service can serve meanwhile: what is published or subscribed then fails with
// [messaging.ErrBrokerDown] at its deadline, and works as soon as the broker has come and what is declared is made. The log says when the
// waiting begins, and when it ends. With Config.Required Connect itself waits, for Config.ConnectTimeout.
//
// What waiting does not mend is an error at once: a configuration that cannot be used, a broker that refuses us.
func Connect(ctx context.Context, cfg *Config) (*Broker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := cfg.WithDefaults()
	b := &Broker{cfg: c, topics: map[string]*topic{}, receivers: map[*receiver]bool{}}
	b.telemetry = otelx.NewLater(b.cfg.Telemetry, newInstruments)
	b.log = quietlog.New(b.telemetry.Logger(), c.LogInterval)
	b.open, b.end = context.WithCancel(context.Background())
	b.start = newStart(b)
	if err := b.connect(ctx); err != nil {
		// Not waited for: a request that the broker does not answer takes its time to end.
		go func() { _ = b.Close() }() // the caller has its error
		return nil, err
	}
	return b, nil
}

func (b *Broker) connect(ctx context.Context) error {
	admin, err := topics.NewAdmin(b.cfg.keeper())
	if err != nil {
		return err
	}
	if b.cfg.TokenFile != "" { // it is read each time, and its absence would look like a broker that does not answer
		if _, err := os.ReadFile(b.cfg.TokenFile); err != nil {
			return fmt.Errorf("pulsar: Config.TokenFile (ONCEBOX_PULSAR_TOKEN_FILE): %w", err)
		}
	}
	log := discreet{Handler: b.log.Handler(), waiting: b.start.isUnder, refused: b.start.isRefused, users: b.users}
	if b.client, err = pulsarclient.NewClient(clientOptions(&b.cfg, log)); err != nil {
		return fmt.Errorf("pulsar: connect: %w", err)
	}
	b.keeper = topics.NewKeeper(*b.cfg.keeper(), admin, topics.Connection{
		Client: b.client, Open: b.open, Background: &b.background, Log: b.log,
		Unwatched: func(ctx context.Context, topic string) { b.telemetry.Instruments().unwatched(ctx, topic) },
	})
	return b.start.begin(ctx)
}

func clientOptions(c *Config, log slog.Handler) pulsarclient.ClientOptions {
	o := pulsarclient.ClientOptions{
		URL:                        c.URL,
		ConnectionTimeout:          c.ConnectionTimeout,
		OperationTimeout:           c.OperationTimeout,
		KeepAliveInterval:          c.KeepAliveInterval,
		Logger:                     pulsarlog.NewLoggerWithSlog(slog.New(log)),
		MetricsRegisterer:          nowhere{},
		MemoryLimitBytes:           -1, // what the client loses would count for ever; callers hold the payloads anyway
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

// enter counts a call that Close has to wait for. The caller leaves by calling b.calls.Done.
func (b *Broker) enter(call string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return fmt.Errorf("%w: pulsar: %s after Close", messaging.ErrBrokerDown, call)
	}
	b.calls.Add(1)
	return nil
}

// Close refuses new calls, waits for those that are under way, hands back what receivers did not settle, and closes the
// connection. Receivers return [messaging.ErrClosed]. An error says that the broker did not confirm the end in time; it
// will notice it by itself.
func (b *Broker) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	b.mu.Unlock()
	defer quietlog.Flush(b.log)

	if b.start.isUnder() {
		b.end() // the calls under way wait for the start, and have sent nothing
	}
	// Producers must not be closed while somebody sends with them: the client panics.
	if !waitFor(&b.calls, b.cfg.CloseTimeout) {
		b.end()
		waitFor(&b.calls, b.cfg.CloseTimeout)
	}
	b.end()

	var closing sync.WaitGroup
	closing.Go(func() {
		for _, r := range b.openReceivers() {
			_ = r.Close() // never fails
		}
		// What comes after the client is closed would open connections that nobody closes.
		waitFor(&b.background, b.cfg.CloseTimeout/2)
		if b.client != nil {
			b.client.Close()
		}
		b.background.Wait()
	})
	ended := waitFor(&closing, b.cfg.CloseTimeout)
	if b.keeper != nil {
		b.keeper.Admin.Close()
	}
	if !ended {
		return fmt.Errorf("pulsar: close: %s did not confirm it within %s", b.cfg.URL, b.cfg.CloseTimeout)
	}
	return nil
}

func (b *Broker) openReceivers() []*receiver {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]*receiver, 0, len(b.receivers))
	for r := range b.receivers {
		out = append(out, r)
	}
	return out
}

func waitFor(group *sync.WaitGroup, limit time.Duration) bool {
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
