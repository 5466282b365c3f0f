package messaging

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/oncebox/oncebox/internal/quietlog"
)

// Backlog is what waits at the broker for one receiver.
type Backlog struct {
	// Topic is the logical topic.
	Topic string
	// Messages is how many are not settled, those in this process included, of what this receiver has to bring forward:
	// with [Failover] the partitions that are its own or nobody's, else the whole subscription. A broker that stores
	// messages in batches may count those.
	Messages int64
	// Left is how many more there are that this receiver was told to leave, see BacklogReceiver.Leave. Messages does not count them.
	Left int64
	// Settled changes with every message of the subscription that any consumer settles. It means nothing beyond that.
	Settled int64
}

// BacklogReceiver is a [Receiver] that can ask the broker what waits there. A subscription that the broker has stopped
// to deliver looks idle to everybody else.
type BacklogReceiver interface {
	Receiver

	// Backlog asks the broker. An error means that it did not say.
	Backlog(ctx context.Context) (Backlog, error)
	// Leave says that m is left at the broker, see [LeaveAtBroker]: the receiver need not bring it again before its next connection,
	// and does not count it as waiting until then.
	Leave(m *Message)
}

// standstill is for how long messages have waited at the broker without any being settled.
type standstill struct {
	since   time.Time // the first look in a row that found so; zero: the last one did not
	last    time.Time // the last look
	backlog Backlog
	settled time.Time // by this consumer, as of the last look
}

// seen takes a look into account. Between two looks nothing is known, so the first of them proves nothing.
func (s *standstill) seen(b Backlog, settled time.Time, paused bool) {
	now := time.Now()
	stands := b.Messages > 0 && !paused
	if !stands {
		s.since = time.Time{}
	} else if s.since.IsZero() || b.Settled != s.backlog.Settled || !settled.Equal(s.settled) {
		s.since = now
	}
	s.last, s.backlog, s.settled = now, b, settled
}

// lasted is how long it has lasted at the last look. A look that failed tells nothing.
func (s *standstill) lasted() time.Duration {
	if s.since.IsZero() {
		return 0
	}
	return s.last.Sub(s.since)
}

// watch looks at the backlog again and again until ctx is done.
func (c *Consumer) watch(ctx context.Context, r BacklogReceiver) {
	away := quietlog.Away(ctx, quietlog.Broker)
	ticker := time.NewTicker(c.cfg.BacklogInterval)
	defer ticker.Stop()
	for {
		b, err := c.ask(ctx, r)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			c.telemetry.waiting(ctx, b)
		default:
			c.telemetry.log.WarnContext(away, "oncebox: the broker does not tell what waits; a subscription that it stops to deliver would look idle",
				"consumer", c.cfg.Name, "error", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (c *Consumer) ask(ctx context.Context, r BacklogReceiver) (Backlog, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.BacklogInterval)
	defer cancel()
	b, err := r.Backlog(ctx)
	if err != nil {
		return b, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.standstill.seen(b, c.lastProgress, c.paused)
	return b, nil
}

// waiting measures a backlog.
func (t *instruments) waiting(ctx context.Context, b Backlog) {
	t.backlog.Record(ctx, b.Messages, metric.WithAttributes(attribute.String("consumer", t.consumer), attribute.String("topic", b.Topic)))
}
