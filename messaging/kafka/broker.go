package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/internal/publishing"
	"github.com/oncebox/oncebox/internal/quietlog"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/kafka/internal/topics"
	"github.com/oncebox/oncebox/telemetry"
)

// Broker is a connection to Kafka. All methods are safe for concurrent use.
type Broker struct {
	cfg       Config
	tls       *tls.Config
	log       *slog.Logger
	telemetry *otelx.Later[publishing.Instruments]
	start     *adapters.Start
	calls     adapters.Calls

	client    *kgo.Client // for questions; it neither produces nor consumes
	keeper    *topics.Keeper
	producers *producers

	// open is done when Close has waited long enough for calls that are under way.
	open context.Context //nolint:containedctx // the life of the connection
	end  context.CancelFunc

	topics sync.Map // by name, *topic

	mu        sync.Mutex
	receivers map[*receiver]bool
}

// Connect connects to the broker and makes the topics and subscriptions of cfg. If the broker cannot be reached, Connect returns and goes
// on in the background, for as long as it takes, so that a service can serve meanwhile. Until then, calls of Publish and Subscribe fail
// with [messaging.ErrBrokerDown] at their deadline. The log says when the waiting begins, and when it ends. With Config.Required Connect
// itself waits, for Config.ConnectTimeout.
//
// An error that waiting does not mend is returned at once: a configuration that cannot be used, a broker that refuses the credentials, a
// topic with settings that lose messages.
func Connect(ctx context.Context, cfg *Config) (*Broker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	b := &Broker{cfg: cfg.WithDefaults(), receivers: map[*receiver]bool{}}
	var err error
	if b.tls, err = b.cfg.tlsConfig(); err != nil {
		return nil, err
	}
	if _, err := b.cfg.password(); err != nil { // a missing file would later look like a broker that does not answer
		return nil, err
	}
	b.telemetry = otelx.NewLater(b.cfg.Telemetry, func(to telemetry.Config) *publishing.Instruments {
		return publishing.New(to, "messaging/kafka", "kafka")
	})
	b.log = quietlog.New(b.telemetry.Logger(), b.cfg.LogInterval)
	b.open, b.end = context.WithCancel(context.Background())
	b.producers = newProducers(b)
	b.start = adapters.NewStart(adapters.Greeting{
		Kind: title, URL: b.cfg.URL, Setting: "Config.URL (ONCEBOX_KAFKA_URL)", Greet: b.greet, Lasts: lasts,
		Required: b.cfg.Required, Timeout: b.cfg.ConnectTimeout, Open: b.open, Log: b.log,
	})
	if b.client, err = kgo.NewClient(b.cfg.clientOptions(b.tls, b.log)...); err != nil {
		return nil, fmt.Errorf("kafka: connect: %w", err)
	}
	b.keeper = topics.NewKeeper(b.cfg.keeper(), b.client, b.log)
	if err := b.start.Begin(ctx); err != nil {
		_ = b.Close() // err goes to the caller already
		return nil, fmt.Errorf("kafka: %w", err)
	}
	return b, nil
}

// greet returns nil as soon as a broker has answered and the topics and subscriptions of Config exist.
func (b *Broker) greet(ctx context.Context) error {
	reaching, cancel := context.WithTimeout(ctx, b.cfg.OperationTimeout)
	defer cancel()
	if err := b.ping(reaching); err != nil {
		return err
	}
	return b.keeper.Declare(ctx, b.cfg.Topics, b.cfg.Subscriptions)
}

// ping asks any broker. A listener of another kind hangs up, or says nothing.
func (b *Broker) ping(ctx context.Context) error {
	err := b.client.Ping(ctx)
	if errors.Is(err, io.EOF) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w (this client speaks %s: does the listener at this address, too? See Config.TLS and Config.SASL)", err, b.cfg.protocol())
	}
	return err
}

// lasts reports whether waiting does not mend an error.
func lasts(err error) bool {
	_, isTopic := errors.AsType[*messaging.TopicError](err)
	return messaging.IsPermanent(err) || isTopic || topics.IsNotLetIn(err) || adapters.IsTLSFault(err)
}

// Close refuses new calls, waits for the calls under way, hands back the messages that receivers did not settle, and closes the connection.
// Receivers return [messaging.ErrClosed]. An error means that the broker did not confirm the end in time; it will notice the end by itself.
func (b *Broker) Close() error {
	if !b.start.Drain(&b.calls, b.end, b.cfg.CloseTimeout) {
		return nil
	}
	defer quietlog.Flush(b.log)
	b.end()
	var closing sync.WaitGroup
	for _, r := range b.openReceivers() {
		closing.Go(func() { _ = r.Close() }) // the loss of the last commit is logged
	}
	closing.Go(b.producers.close)
	ended := adapters.WaitFor(&closing, 2*b.cfg.CloseTimeout)
	b.client.Close()
	if ended = b.start.End(b.cfg.CloseTimeout) && ended; !ended {
		return fmt.Errorf("kafka: close: the broker %s has not confirmed the end of the connection within %s", b.cfg.URL, b.cfg.CloseTimeout)
	}
	return nil
}

// openReceivers returns a copy, because closing a receiver removes it from the map.
func (b *Broker) openReceivers() []*receiver {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.receivers))
}

// enter counts a call that Close has to wait for, and limits it. The caller leaves when the call ends.
func (b *Broker) enter(ctx context.Context, call string, limit time.Duration) (_ context.Context, leave func(), err error) {
	return b.calls.Begin(ctx, b.open, "kafka: "+call, limit)
}
