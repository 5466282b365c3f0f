package rabbitmq

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/oncebox/oncebox/messaging"
)

// attachment is a channel that consumes the queues of a subscription, until the channel ends. The broker then returns all messages that were not
// settled to the places that they had.
type attachment struct {
	receiver  *receiver
	session   *session
	channel   *amqp.Channel
	closed    <-chan *amqp.Error
	cancelled <-chan string // gets the tag of a consumer whose queue is gone

	asked atomic.Value // the name of the queue that has to answer, while the attachment is made

	renew chan struct{} // gets a token when the channel is to be closed, so that its messages come again

	// The mutex of the receiver guards these.
	ended      bool
	renewing   bool           // renew gets its token, now or after a pause
	held, left map[string]int // messages by queue that are not settled, and those of them that were left at the broker
}

// receipt holds what is needed to settle a message, or to deliver it again.
type receipt struct {
	at       *attachment
	queue    string
	delivery amqp.Delivery
	unnamed  string // the place of a message without an id, see place
	number   uint64 // in the order in which messages arrived
	attempt  int

	settled, left bool
}

// place returns the place of the message within its topic. AMQP numbers no messages, so it is a new one for each delivery by the broker: a message
// without an id may be handled twice, and is never taken for another one. The caller holds the mutex of the receiver.
func (rc *receipt) place() string {
	if rc.unnamed == "" {
		rc.unnamed = strings.ToLower(rand.Text())
	}
	return rc.unnamed
}

// attach consumes the queues of the subscription. The error is that of the broker, with what to do about it.
func (r *receiver) attach(ctx context.Context, s *session) (*attachment, error) {
	a := &attachment{receiver: r, session: s, renew: make(chan struct{}, 1), held: map[string]int{}, left: map[string]int{}}
	a.asked.Store("")
	slow := time.AfterFunc(r.broker.cfg.ConnectTimeout/2, func() {
		r.broker.log.Warn("oncebox: a queue does not let its consumer in, so nothing of the subscription is received", "queue", a.asked.Load(),
			"topic", r.subscription.Topic, "subscription", r.subscription.Name, "look", "rabbitmq-queues quorum_status; oncebox doctor")
	})
	defer slow.Stop()
	ch, err := s.channel(ctx, a.consume)
	if err != nil {
		r.drop(a)
		if queue := a.asked.Load(); queue != "" && (ctx.Err() != nil || isCode(err, amqp.InternalError)) {
			err = fmt.Errorf("queue %s gives no answer; has it a leader? `rabbitmq-queues quorum_status` and `oncebox doctor` show it: %w", queue, err)
		}
		return nil, r.broker.topology.explain(r.subscription, err)
	}
	a.channel = ch
	return a, nil
}

func (a *attachment) consume(ch *amqp.Channel) error {
	r := a.receiver
	a.closed, a.cancelled = ch.NotifyClose(make(chan *amqp.Error, 1)), ch.NotifyCancel(make(chan string, len(r.queues)))
	if err := ch.Qos(r.prefetch(), 0, false); err != nil {
		return err
	}
	for n, queue := range r.queues {
		a.asked.Store(queue)
		deliveries, err := ch.Consume(queue, a.tag(n), false, false, false, false, nil)
		if err != nil {
			return err
		}
		go a.take(queue, deliveries)
	}
	return nil
}

// prefetch is how many messages of one queue the broker sends before they are settled. AMQP has 16 bits for it, where 0 is no limit.
func (r *receiver) prefetch() int {
	return min(max(r.broker.cfg.Prefetch/len(r.queues), r.subscription.Queue, 1), math.MaxUint16)
}

// tag names the consumer of a queue. The broker shows it.
func (a *attachment) tag(n int) string {
	const room = 200
	name := a.receiver.name
	if len(name) > room {
		name = name[:room]
	}
	return queueName(name, n)
}

// take takes the messages of one queue, in their order, until the channel ends.
func (a *attachment) take(queue string, deliveries <-chan amqp.Delivery) {
	for d := range deliveries {
		a.arrive(&receipt{at: a, queue: queue, delivery: d, attempt: attemptOf(&d)})
	}
}

func (a *attachment) arrive(rc *receipt) {
	r := a.receiver
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.ended {
		return // it comes again
	}
	r.last++
	rc.number = r.last
	a.held[rc.queue]++
	r.arrived = append(r.arrived, rc)
	r.Wake()
}

// wait returns when the channel has ended, or has to end. The reason is a queue that is gone, or a refusal of the broker, for example because a message
// was held for longer than its consumer_timeout; neither is set if the whole connection is lost.
func (a *attachment) wait(ctx context.Context) (gone string, refusal *amqp.Error) {
	select {
	case err := <-a.closed:
		if !a.session.conn.IsClosed() {
			refusal = err
		}
	case tag, ok := <-a.cancelled:
		for n, queue := range a.receiver.queues {
			if ok && a.tag(n) == tag {
				gone = queue
			}
		}
	case <-a.renew:
	case <-ctx.Done():
	}
	return gone, refusal
}

// close closes the channel, so that the broker returns its messages. It waits for the broker's answer, for limit at most.
func (a *attachment) close(limit time.Duration) {
	done := make(chan struct{})
	go func() {
		_ = a.channel.Close() // an error means that it is closed already
		close(done)
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

var _ messaging.ConnectedReceiver = (*receiver)(nil)
