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
	// Subscribe joins a subscription, and makes it if it does not exist.
	Subscribe(ctx context.Context, s Subscription) (Receiver, error)
}

// Consume calls h for the messages of a subscription until ctx is done, and drains then. It returns an error if the configuration cannot be
// used, or the broker refuses the subscription for good. See [Loop].
func Consume(ctx context.Context, b Subscriber, s Subscription, h Handler, cfg *ConsumerConfig) error {
	l, err := NewLoop(b, s, h, cfg)
	if err != nil {
		return err
	}
	defer quietlog.Flush(l.log)
	return l.Run(ctx)
}

// Loop consumes a subscription whatever happens to it. A broker that is down at the start is tried again, and when a
// [Consumer] ends by itself, because the topic was deleted or terminated or a permission revoked, the next one is
// subscribed in its place. The pauses between tries grow up to half a minute.
type Loop struct {
	broker       Subscriber
	subscription Subscription
	handler      Handler
	cfg          ConsumerConfig
	log          *slog.Logger

	mu      sync.Mutex
	current *Consumer // while it is subscribed
	changed time.Time // when it was subscribed, or ceased to be, last
	last    error     // why it is not subscribed
	paused  bool
}

// NewLoop returns a loop that does not run yet. The error names what cannot be used of s or cfg.
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

// calm is how long a consumer must have run for its end to count as a first failure again.
const calm = time.Minute

// Run consumes until ctx is done, drains then, as [Consumer.Run] does, and returns nil. What goes wrong is logged and tried again, except for
// what Subscribe refuses for good ([IsPermanent]), a subscription of another service for example: Run returns that.
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
			return nil // ctx has ended
		}
	}
}

// consume subscribes, and consumes for as long as that lasts.
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

// leave notes why the loop is not subscribed, and since when if it was.
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

// Progress returns how far the present consumer has come. subscribed is false while there is none.
func (l *Loop) Progress() (p Progress, subscribed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == nil {
		return Progress{}, false
	}
	return l.current.Progress(), true
}

// Health returns nil if the loop is subscribed and makes progress, and an error otherwise: a connection has been missing for longer than
// limit, or there has been work for as long, in this process or at the broker, and none of it got done. An idle loop is healthy, and so is
// a paused one.
func (l *Loop) Health(limit time.Duration) error {
	p, subscribed := l.Progress()
	is := l.Connection()
	switch {
	case !subscribed && is.Err != nil && time.Since(is.Since) > limit:
		return fmt.Errorf("messaging: consumer %s is not subscribed to topic %s: %w", l.cfg.Name, l.subscription.Topic, is.Err)
	case !subscribed:
		return fmt.Errorf("messaging: consumer %s is not subscribed to topic %s", l.cfg.Name, l.subscription.Topic)
	case is.Away > 0 && time.Since(is.Since) > limit: // what waits may be unknown: producers may be cut off as well
		return fmt.Errorf("messaging: consumer %s of topic %s lacks %d of its %d connections to the broker since %s: %w",
			l.cfg.Name, l.subscription.Topic, is.Away, is.Parts, is.Since.UTC().Format(time.RFC3339), is.Err)
	case p.Standstill > limit && time.Since(p.Last) <= limit: // it has begun to get on since the broker was asked
		return fmt.Errorf("messaging: consumer %s of topic %s makes no progress: of %d messages at the broker, none was settled in the %s before the broker was last asked",
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

// Pause stops the flow of messages, for as long as a service that all handlers need is away for example. What is in this process is still
// handled, and the loop keeps its place among the others. Messages that wait at the broker are no standstill then. It holds for later consumers of the
// loop too.
func (l *Loop) Pause() { l.setPaused(true) }

// Resume starts the flow again.
func (l *Loop) Resume() { l.setPaused(false) }

func (l *Loop) setPaused(paused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.paused = paused
	if l.current != nil {
		l.current.setPaused(paused)
	}
}
