package kafka

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/kafka/internal/topics"
	"github.com/oncebox/oncebox/messaging/wire"
)

// receiver is one consumer of a group.
//
// Its client fetches from the broker by itself. Receive polls the client when it has no message left, so at most Subscription.Queue messages wait
// here; see fetch.go. The account of each partition that belongs to the receiver knows which messages are settled; see rebalance.go for how partitions
// come and go, and commit.go for how offsets are committed.
type receiver struct {
	broker       *Broker
	subscription messaging.Subscription
	full, group  string
	client       *kgo.Client
	links        *links
	background   sync.WaitGroup

	committing sync.Mutex // one commit at a time

	mu         sync.Mutex
	owner      topics.Owner
	accounts   map[int32]*account
	queue      []*delivery // received from the client and not delivered, the messages of a partition in their order
	poll       *poll       // under way; nil
	paused     bool
	changed    chan struct{} // closed and replaced when the state of the receiver changes, and when a message of a partition that moves is settled
	marked     chan struct{} // closed when a commit has marked the subscription with its owner
	isMarked   bool
	markSoon   chan struct{} // has a token when the subscription may be marked before the next tick
	settled    int64         // messages settled here
	leaving    bool          // Close was called
	left       chan struct{} // closed when it is
	closed     chan struct{} // closed when Close has done its work
	closedOnce sync.Once
}

// delivery is a message, and its receipt.
type delivery struct {
	receiver *receiver
	account  *account
	record   *kgo.Record
	attempt  int
	held     bool // the caller of Receive has it
}

var (
	_ messaging.ConnectedReceiver = (*receiver)(nil)
	_ messaging.BacklogReceiver   = (*receiver)(nil)
)

func newReceiver(b *Broker, s messaging.Subscription, is topics.Owner) *receiver {
	if s.Queue == 0 {
		s.Queue = 64
	}
	return &receiver{
		broker: b, subscription: s, full: b.cfg.names().FullName(s.Topic), group: b.cfg.names().Group(s), links: newLinks(), owner: is,
		accounts: map[int32]*account{}, changed: make(chan struct{}), marked: make(chan struct{}), markSoon: make(chan struct{}, 1),
		left: make(chan struct{}), closed: make(chan struct{}),
	}
}

// Receive implements [messaging.Receiver].
func (r *receiver) Receive(ctx context.Context) (*messaging.Message, error) {
	for {
		d, changed, err := r.take()
		switch {
		case err != nil:
			return nil, err
		case d != nil:
			return r.message(d), nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case changed != nil: // paused
			select {
			case <-changed:
			case <-ctx.Done():
			}
		default:
			if err := r.fetch(ctx); err != nil {
				return nil, err
			}
		}
	}
}

// take returns the next message of the queue. During a pause it returns a channel that is closed when something changes.
func (r *receiver) take() (d *delivery, changed <-chan struct{}, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.leaving:
		return nil, nil, messaging.ErrClosed
	case r.paused:
		return nil, r.changed, nil
	case len(r.queue) == 0:
		return nil, nil, nil
	}
	d = r.queue[0]
	r.queue[0] = nil // else the slice's array would keep the message in memory
	r.queue = r.queue[1:]
	d.held = true
	d.account.inHand++
	return d, nil, nil
}

// message returns what a delivery has for the caller.
func (r *receiver) message(d *delivery) *messaging.Message {
	record := d.record
	properties := make(map[string]string, len(record.Headers))
	for _, h := range record.Headers {
		properties[h.Key] = string(h.Value)
	}
	in := wire.Received{
		Topic: r.subscription.Topic, Key: string(record.Key), Properties: properties, Payload: record.Value,
		Place:  func() string { return strconv.Itoa(int(record.Partition)) + "-" + strconv.FormatInt(record.Offset, 10) },
		Origin: record.Topic, Published: record.Timestamp,
	}
	in.Unreadable = wire.Oversize(in.Size(), r.broker.cfg.MaxReceivedBytes, "Config.MaxReceivedBytes (ONCEBOX_KAFKA_MAX_RECEIVED_BYTES)")
	return messaging.NewMessage(format.Envelope(&in), d.attempt, d)
}

// release takes a message back from the caller. It returns nil if there is nothing to do: the message was settled, or its partition belongs to another
// consumer by now. The caller holds the mutex.
func (r *receiver) release(m *messaging.Message, call string) (*delivery, error) {
	d, err := adapters.Receipt(r.leaving, m, "kafka: "+call, func(d *delivery) bool { return d.receiver == r })
	if err != nil || d.account.gone || !d.held {
		return nil, err
	}
	d.held = false
	d.account.inHand--
	if d.account.ending {
		r.change()
	}
	return d, nil
}

// Ack implements [messaging.Receiver]. The offset is committed within Config.CommitInterval.
func (r *receiver) Ack(_ context.Context, m *messaging.Message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	d, err := r.release(m, "ack")
	if d == nil {
		return err
	}
	if d.account.settle(d.record.Offset) {
		r.settled++
	}
	return nil
}

// Redeliver implements [messaging.Receiver]. The message is the next of its partition again.
func (r *receiver) Redeliver(_ context.Context, m *messaging.Message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	d, err := r.release(m, "redeliver")
	if d == nil {
		return err
	}
	if d.account.ending {
		return nil // the next consumer gets it
	}
	d.attempt++
	at := slices.IndexFunc(r.queue, func(o *delivery) bool { return o.account == d.account && o.record.Offset > d.record.Offset })
	if at < 0 {
		at = len(r.queue)
	}
	r.queue = slices.Insert(r.queue, at, d)
	if r.poll != nil {
		r.poll.cancel()
	}
	return nil
}

// change wakes everybody who waits for a change of the receiver. The caller holds the mutex.
func (r *receiver) change() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// Pause implements [messaging.Receiver].
func (r *receiver) Pause() { r.setPaused(true) }

// Resume implements [messaging.Receiver].
func (r *receiver) Resume() { r.setPaused(false) }

func (r *receiver) setPaused(paused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.paused = paused
	r.change()
}

// Close implements [messaging.Receiver]. It commits what was settled, and leaves the group.
func (r *receiver) Close() error {
	r.closedOnce.Do(func() {
		r.mu.Lock()
		r.leaving = true
		close(r.left)
		r.change()
		r.mu.Unlock()
		r.interrupt()
		go r.leave()
	})
	<-r.closed
	return nil
}

// leave ends the client. The broker may be away, so each step has a limit.
func (r *receiver) leave() {
	limit, cancel := context.WithTimeout(context.Background(), r.broker.cfg.CloseTimeout)
	defer cancel()
	if err := r.commit(limit, nil); err != nil {
		r.broker.log.Info("oncebox: the last offsets of a receiver were not committed; the messages that it settled last come again",
			"topic", r.full, "group", r.group, "error", err)
	}
	_ = r.client.LeaveGroupContext(limit) // without an answer the broker notices it after Config.SessionTimeout
	r.client.Close()
	adapters.WaitFor(&r.background, time.Second)
	r.broker.mu.Lock()
	delete(r.broker.receivers, r)
	r.broker.mu.Unlock()
	close(r.closed)
}
