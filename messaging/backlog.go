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
	// Settled is a number that changes whenever any consumer of the subscription settles a message. Only changes mean something, not the value: it
	// shows whether the subscription makes progress.
	Settled int64
}

// BacklogReceiver is a [Receiver] that can ask the broker how many messages wait. A receiver without it cannot distinguish a subscription whose
// messages the broker has stopped delivering from an idle one.
type BacklogReceiver interface {
	Receiver

	// Backlog asks the broker. An error means that there was no answer.
	Backlog(ctx context.Context) (Backlog, error)
	// Leave leaves m at the broker, see [LeaveAtBroker]. The receiver may wait with another delivery of m until it connects again. Until then Backlog
	// counts m in Left and not in Messages.
	Leave(m *Message)
}

// standstill measures how long messages have waited at the broker while no consumer settled any message.
type standstill struct {
	since   time.Time // when the present standstill was first seen; zero if the last look found no standstill
	last    time.Time // when the broker was last asked
	backlog Backlog
	settled time.Time // when this consumer had last settled a message, at the time of the last look
}

// seen adds the broker's answer to one look. Two answers have to be compared to see a standstill, so the first one only starts the clock.
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

// lasted returns how long the standstill had lasted at the last look that got an answer.
func (s *standstill) lasted() time.Duration {
	if s.since.IsZero() {
		return 0
	}
	return s.last.Sub(s.since)
}

// watch asks the broker for the backlog every BacklogInterval until ctx is done.
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

// waiting records a backlog as a metric.
func (t *instruments) waiting(ctx context.Context, b Backlog) {
	t.backlog.Record(ctx, b.Messages, metric.WithAttributes(attribute.String("consumer", t.consumer), attribute.String("topic", b.Topic)))
}
