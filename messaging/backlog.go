package messaging

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/oncebox/oncebox/internal/quietlog"
)

// Backlog counts the messages that wait at the broker for one receiver.
type Backlog struct {
	// Topic is the logical topic.
	Topic string
	// Messages is the number of unsettled messages, including messages in this process, that this receiver is responsible for: with
	// [Failover] the messages of its own partitions and of partitions without an owner, else of the whole subscription. A broker that
	// stores messages in batches may count batches.
	Messages int64
	// Left is the number of further messages that this receiver leaves at the broker, see BacklogReceiver.Leave. Messages does not count
	// them.
	Left int64
	// Settled changes with every message of the subscription that any consumer settles. It means nothing beyond that.
	Settled int64
}

// BacklogReceiver is a [Receiver] that can ask the broker how many messages wait. Without it, a subscription that the broker has stopped to
// deliver looks idle.
type BacklogReceiver interface {
	Receiver

	// Backlog asks the broker. An error means that there was no answer.
	Backlog(ctx context.Context) (Backlog, error)
	// Leave leaves m at the broker, see [LeaveAtBroker]: the receiver need not deliver it again before its next connection, and does not
	// count it as waiting until then.
	Leave(m *Message)
}

// standstill measures how long messages have waited at the broker without any being settled.
type standstill struct {
	since   time.Time // the first of the latest looks in a row that found a standstill; zero if the last look found none
	last    time.Time // the last look
	backlog Backlog
	settled time.Time // by this consumer, as of the last look
}

// seen adds the result of a look. A standstill can only be seen by comparing two looks, so the first one proves nothing.
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

// lasted returns how long the standstill had lasted at the last look. A look that failed does not count.
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
			c.telemetry.log.WarnContext(away, "oncebox: the broker does not report how many messages wait for a consumer; if it stopped "+
				"delivering, the consumer would look idle",
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
