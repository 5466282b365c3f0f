package messaging

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/internal/quietlog"
	"github.com/oncebox/oncebox/retry"
)

// Subscriber is the receiving side of a broker.
type Subscriber interface {
	// Subscribe joins a subscription, and creates it if it does not exist.
	Subscribe(ctx context.Context, s Subscription) (Receiver, error)
}

// Consume calls h for the messages of a subscription until ctx is done, and then drains, see [Consumer.Run]. It returns an error if the configuration
// cannot be used, or if the broker refuses the subscription for good. See [Loop].
func Consume(ctx context.Context, b Subscriber, s Subscription, h Handler, cfg *ConsumerConfig) error {
	l, err := NewLoop(b, s, h, cfg)
	if err != nil {
		return err
	}
	defer quietlog.Flush(l.log)
	return l.Run(ctx)
}

// Loop keeps a subscription consumed. While the broker is down it tries again to subscribe. When a [Consumer] ends by itself, because the topic was
// deleted or a permission was revoked for example, it subscribes again with a new consumer. The pauses between the tries grow up to half a minute.
type Loop struct {
	broker       Subscriber
	subscription Subscription
	handler      Handler
	cfg          ConsumerConfig
	log          *slog.Logger

	mu      sync.Mutex
	current *Consumer // nil while the loop is not subscribed
	changed time.Time // when the loop was last subscribed, or last lost its subscription
	last    error     // why the loop is not subscribed
	paused  bool
}

// NewLoop returns a loop that does not run yet. The error names the fields of s and cfg that cannot be used.
func NewLoop(b Subscriber, s Subscription, h Handler, cfg *ConsumerConfig) (*Loop, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	c := cfg.WithDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Name == "" {
		c.Name = s.Name
	}
	c.Unordered = c.Unordered || s.Type == Shared
	return &Loop{broker: b, subscription: s, handler: h, cfg: c, log: otelx.Logger(c.Telemetry.Logger)}, nil
}

// calm is how long a consumer must have run for its end to count as a first failure again, after which the pause is short.
const calm = time.Minute

// Run consumes until ctx is done, drains then, as [Consumer.Run] does, and returns nil. Failures are logged and tried again. Only a subscription that
// the broker refuses for good ([IsPermanent]), because it belongs to another service for example, ends Run with an error.
func (l *Loop) Run(ctx context.Context) error {
	l.begin()
	looking, stop := context.WithCancel(ctx)
	var reporting sync.WaitGroup
	reporting.Go(func() { l.reportConnection(looking) })
	defer reporting.Wait()
	defer stop()
	for failures := 1; ; failures++ {
		started := time.Now()
		err := l.consume(ctx)
		l.leave(err)
		if ctx.Err() != nil {
			if err != nil {
				l.log.WarnContext(ctx, "oncebox: a consumer returned an error while it was "+
					"stopped", "topic", l.subscription.Topic, "consumer", l.cfg.Name, "error", err)
			}
			return nil
		}
		if IsPermanent(err) {
			return err
		}
		if time.Since(started) > calm {
			failures = 1
		}
		pause := retry.Policy{Delay: 200 * time.Millisecond, MaxDelay: 30 * time.Second}.Pause(failures)
		l.log.WarnContext(ctx, "oncebox: a consumer has no subscription at the broker; it subscribes again after the pause",
			"topic", l.subscription.Topic, "consumer", l.cfg.Name, "pause", pause, "error", err)
		if backoff.Wait(ctx, pause) != nil {
			return nil // ctx is done
		}
	}
}

// consume subscribes and runs one consumer until it ends.
func (l *Loop) consume(ctx context.Context) error {
	receiver, err := l.broker.Subscribe(ctx, l.subscription)
	if ctx.Err() != nil && err != nil {
		return nil //nolint:nilerr // Run was asked to end, and Subscribe failed for that
	}
	if err != nil {
		return fmt.Errorf("messaging: subscribe %q to topic %q: %w", l.subscription.Name, l.subscription.Topic, err)
	}
	c := NewConsumer(receiver, l.handler, &l.cfg)
	l.enter(c)
	return c.Run(ctx)
}

func (l *Loop) enter(c *Consumer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.paused {
		c.setPaused(true)
	}
	l.current, l.changed, l.last = c, time.Now(), nil
}

// leave records why the loop is not subscribed, and when it lost its subscription.
func (l *Loop) leave(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current != nil {
		l.current, l.changed = nil, time.Now()
	}
	l.last = err
}

func (l *Loop) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changed = time.Now()
}

// Progress returns the progress of the present consumer. subscribed is false if there is none.
func (l *Loop) Progress() (p Progress, subscribed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == nil {
		return Progress{}, false
	}
	return l.current.Progress(), true
}

// Health returns nil if the loop is subscribed and makes progress. It returns an error if a connection has been missing for longer than
// limit, or if messages have waited for longer than limit, in this process or at the broker, and none was settled. An idle loop is
// healthy, and so is a paused one.
func (l *Loop) Health(limit time.Duration) error {
	p, subscribed := l.Progress()
	is := l.Connection()
	switch {
	case !subscribed && is.Err != nil && time.Since(is.Since) > limit:
		return fmt.Errorf("messaging: consumer %s is not subscribed to topic %s: %w", l.cfg.Name, l.subscription.Topic, is.Err)
	case !subscribed:
		return fmt.Errorf("messaging: consumer %s is not subscribed to topic %s", l.cfg.Name, l.subscription.Topic)
	case is.Away > 0 && time.Since(is.Since) > limit: // with a connection missing the broker may not report its backlog, and producers may be cut off, too
		return fmt.Errorf("messaging: consumer %s of topic %s lacks %d of its %d connections to the broker since %s: %w",
			l.cfg.Name, l.subscription.Topic, is.Away, is.Parts, is.Since.UTC().Format(time.RFC3339), is.Err)
	case l.isPaused(): // messages wait on purpose
		return nil
	case p.Standstill > limit && time.Since(p.Last) <= limit: // a message was settled after the broker had been asked
		return fmt.Errorf("messaging: consumer %s of topic %s makes no progress: of %d messages at the broker, none was settled in the %s before "+
			"the broker was last asked",
			l.cfg.Name, l.subscription.Topic, p.Backlog, p.Standstill.Round(time.Second))
	case p.Stalled(limit):
		return fmt.Errorf("messaging: consumer %s of topic %s makes no progress: %d messages in this process and %d at the broker are not "+
			"settled, last progress %s",
			l.cfg.Name, l.subscription.Topic, p.Unsettled, p.Backlog, ago(p.Last))
	default:
		return nil
	}
}

func ago(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return time.Since(t).Round(time.Second).String() + " ago"
}

// Pause stops handling, for example while a service that all handlers need is down: no message is received, and no further handler starts. Running
// handlers end. Messages that were received already stay in this process, in their order and without an acknowledgement, and start after
// [Loop.Resume]; if the loop ends first, they go back to the broker. The loop keeps its partitions. While it is paused, messages that wait are
// not a standstill. A pause outlasts the present consumer: it also applies to the loop's next ones.
func (l *Loop) Pause() { l.setPaused(true) }

// Resume starts handling and receiving again after [Loop.Pause].
func (l *Loop) Resume() { l.setPaused(false) }

func (l *Loop) isPaused() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.paused
}

func (l *Loop) setPaused(paused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.paused = paused
	if l.current != nil {
		l.current.setPaused(paused)
	}
}
