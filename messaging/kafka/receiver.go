package kafka

import (
	"context"
	"errors"
	"fmt"
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
// here. The account of each partition that belongs to the receiver knows which messages are settled; see rebalance.go for how partitions come
// and go, and commit.go for how offsets are committed.
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

// poll is one call of the client for messages. done is closed when they are in the queue.
type poll struct {
	cancel context.CancelFunc
	done   chan struct{}
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

// fetch asks the client for messages and puts them into the queue. It returns early, without an error, when it is interrupted.
func (r *receiver) fetch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := &poll{cancel, make(chan struct{})}
	defer close(p.done)
	r.mu.Lock()
	if r.leaving || r.paused || len(r.queue) > 0 { // since take
		r.mu.Unlock()
		return nil
	}
	r.poll = p
	r.mu.Unlock()
	fetches := r.client.PollRecords(ctx, r.subscription.Queue)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.poll = nil
	fetches.EachPartition(r.add)
	return r.fault(fetches)
}

// interrupt ends the poll that is under way and waits until its messages are in the queue.
func (r *receiver) interrupt() {
	r.mu.Lock()
	p := r.poll
	r.mu.Unlock()
	if p != nil {
		p.cancel()
		<-p.done
	}
}

// add puts the messages of a partition into the queue. The caller holds the mutex.
func (r *receiver) add(p kgo.FetchTopicPartition) {
	a := r.accounts[p.Partition]
	if a == nil || a.ending || len(p.Records) == 0 {
		return // it belongs to another consumer
	}
	if first := p.Records[0].Offset; first < a.next {
		a = r.wentBack(p.Partition, a, first)
	} else if a.next >= 0 && a.next < p.LogStartOffset && first > a.next {
		r.broker.log.Error("oncebox: messages were deleted before they were consumed: the topic's retention is shorter than the time for which nobody "+
			"consumed (retention.ms, retention.bytes)", "topic", r.full, "partition", p.Partition, "group", r.group,
			"expected", a.next, "first", p.LogStartOffset, "deleted", min(first, p.LogStartOffset)-a.next)
	}
	for _, record := range p.Records {
		a.receive(record.Offset)
		r.queue = append(r.queue, &delivery{receiver: r, account: a, record: record, attempt: 1})
	}
}

// wentBack begins a new account for a partition whose offsets are lower than they were: the broker has lost its end, or the topic was made anew.
func (r *receiver) wentBack(partition int32, a *account, first int64) *account {
	r.broker.log.Warn("oncebox: the broker delivers a partition again from an earlier place: it has lost messages, or the topic was made anew",
		"topic", r.full, "partition", partition, "group", r.group, "expected", a.next, "first", first)
	r.forget(partition, a)
	fresh := newAccount()
	r.accounts[partition] = fresh
	return fresh
}

// forget ends an account. Its messages are not delivered, and not settled, any more. The caller holds the mutex.
func (r *receiver) forget(partition int32, a *account) {
	a.gone = true
	r.queue = slices.DeleteFunc(r.queue, func(d *delivery) bool { return d.account == a })
	if r.accounts[partition] == a {
		delete(r.accounts, partition)
	}
}

// fault returns the error that ends the receiver: the broker refuses the topic. The client repeats other requests by itself.
func (r *receiver) fault(fetches kgo.Fetches) error {
	for _, e := range fetches.Errors() {
		switch {
		case errors.Is(e.Err, kgo.ErrClientClosed):
			return messaging.ErrClosed
		case topics.IsTopicTrouble(e.Err):
			return fmt.Errorf("kafka: receive from subscription %q: %w", r.subscription.Name,
				&messaging.TopicError{Topic: r.subscription.Topic, Err: e.Err})
		}
	}
	return nil
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
