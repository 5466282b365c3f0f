package messagingtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
)

// limit is small, so that what is too large is soon made.
const limit = 256 << 10

// adapter is package memory behind a connection, with something wrong with it.
type adapter struct {
	memory *memory.Broker
	types  []messaging.SubscriptionType // it refuses others; nil: it has all
	strict bool                         // it reports messages that no subscription gets
	fault  fault
	over   chan struct{} // the end of the test, for what hangs

	mu         sync.Mutex
	subscribed map[string]bool // topics with a subscription
	receivers  []*receiver
	calls      int              // of Publish, for faults
	kept       []event.Envelope // for faults
	once       sync.Once        // for faults
	busy       sync.Mutex       // for faults
	wasCut     atomic.Bool      // for faults
	away       atomic.Bool      // the server was killed
}

// fault is what an adapter does in place of the right thing. It may call what it replaces. A nil field: nothing is wrong.
type fault struct {
	types   []messaging.SubscriptionType // those of the harness; nil: all
	forgets bool                         // the harness says that the broker forgets
	keeps   bool                         // the harness says that receivers keep their messages over a lost connection

	publish   func(ctx context.Context, a *adapter, msgs []event.Envelope) error
	subscribe func(ctx context.Context, a *adapter, s messaging.Subscription) (messaging.Receiver, error)
	declare   func(ctx context.Context, a *adapter, subscriptions []messaging.Subscription) error
	unused    func(ctx context.Context, a *adapter, topic string) (bool, error)
	read      func(s *messaging.SubscriptionState)
	close     func(a *adapter) error
	cut       func(a *adapter)
	crash     func(a *adapter)
	kill      func(a *adapter)
	away      func(ctx context.Context, a *adapter, msgs []event.Envelope) error // Publish while the server is away

	receive   func(ctx context.Context, r *receiver) (*messaging.Message, error)
	ack       func(ctx context.Context, r *receiver, m *messaging.Message) error
	redeliver func(ctx context.Context, r *receiver, m *messaging.Message) error
	pause     func(r *receiver)
	resume    func(r *receiver)
	leave     func(r *receiver) error
}

// sound is the harness of an adapter with a fault; nil: one as it should be.
func sound(f *fault) Harness {
	if f == nil {
		f = &fault{}
	}
	return Harness{
		Open: func(t *testing.T) Broker {
			t.Helper()
			a := &adapter{memory: memory.New(&memory.Config{MaxMessageBytes: limit}), fault: *f, over: make(chan struct{})}
			a.types, a.strict = f.types, f.forgets
			t.Cleanup(func() { close(a.over) })
			return a
		},
		Cut: func(_ *testing.T, b Broker) { b.(*adapter).cut() },
		Crash: func(t *testing.T, b Broker) Broker {
			t.Helper()
			return b.(*adapter).crash(t)
		},
		Kill:            func(_ *testing.T, b Broker) func() { return b.(*adapter).kill() },
		MaxMessageBytes: limit, Declares: true, Owns: true, Counts: true, Types: f.types, Forgets: f.forgets, Keeps: f.keeps,
	}
}

func (a *adapter) Declare(ctx context.Context, topics []string, subscriptions []messaging.Subscription) error {
	if a.fault.declare != nil {
		return a.fault.declare(ctx, a, subscriptions)
	}
	for _, s := range subscriptions {
		a.note(s)
	}
	return a.memory.Declare(ctx, topics, subscriptions)
}

func (a *adapter) Unused(ctx context.Context, topic string) (bool, error) {
	if a.fault.unused != nil {
		return a.fault.unused(ctx, a, topic)
	}
	return a.memory.Unused(ctx, topic)
}

func (a *adapter) ReadSubscription(ctx context.Context, topic, name string) (messaging.SubscriptionState, error) {
	s, err := a.memory.ReadSubscription(ctx, topic, name)
	if a.fault.read != nil {
		a.fault.read(&s)
	}
	return s, err
}

func (a *adapter) Publish(ctx context.Context, msgs []event.Envelope) error {
	a.mu.Lock()
	a.calls++
	a.mu.Unlock()
	switch {
	case a.away.Load() && a.fault.away != nil:
		return a.fault.away(ctx, a, msgs)
	case a.away.Load():
		return allFailed(msgs, messaging.ErrBrokerDown)
	}
	if a.fault.publish != nil {
		return a.fault.publish(ctx, a, msgs)
	}
	return a.pass(ctx, msgs)
}

// pass publishes to what is behind.
func (a *adapter) pass(ctx context.Context, msgs []event.Envelope) error {
	failed := map[int]error{}
	for i, m := range msgs {
		if a.strict && !a.hasSubscription(m.Topic) {
			failed[i] = &messaging.TopicError{Topic: m.Topic, Err: errors.New("no subscription gets the message")}
		}
	}
	if len(failed) > 0 {
		return &messaging.PublishError{Failed: failed}
	}
	return a.memory.Publish(ctx, msgs)
}

func (a *adapter) hasSubscription(topic string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.subscribed[topic]
}

func (a *adapter) note(s messaging.Subscription) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.subscribed == nil {
		a.subscribed = map[string]bool{}
	}
	a.subscribed[s.Topic] = true
}

func (a *adapter) Subscribe(ctx context.Context, s messaging.Subscription) (messaging.Receiver, error) {
	if a.fault.subscribe != nil {
		return a.fault.subscribe(ctx, a, s)
	}
	return a.join(ctx, s)
}

// join subscribes to what is behind.
func (a *adapter) join(ctx context.Context, s messaging.Subscription) (messaging.Receiver, error) {
	if a.types != nil && !slices.Contains(a.types, s.Type) {
		return nil, messaging.Permanent(fmt.Errorf("%w: %s", messaging.ErrNoSuchType, s.Type))
	}
	in, err := a.memory.Subscribe(ctx, s)
	if err != nil {
		return nil, err
	}
	a.note(s)
	a.mu.Lock()
	defer a.mu.Unlock()
	r := &receiver{Receiver: in, a: a, subscription: s, number: len(a.receivers), held: map[string]*messaging.Message{}}
	a.receivers = append(a.receivers, r)
	return r, nil
}

func (a *adapter) Close() error {
	if a.fault.close != nil {
		return a.fault.close(a)
	}
	return a.memory.Close()
}

func (a *adapter) cut() {
	if a.fault.cut != nil {
		a.fault.cut(a)
		return
	}
	if !a.fault.keeps {
		a.memory.Disconnect()
	}
}

// kill makes the broker take back what receivers hold, and refuse messages until it is started again.
func (a *adapter) kill() (restart func()) {
	a.away.Store(true)
	if a.fault.kill != nil {
		a.fault.kill(a)
	} else {
		a.memory.Disconnect()
	}
	return func() { a.away.Store(false) }
}

// crash makes the broker take back the messages in the receivers' hands, like a broker whose clients are gone.
func (a *adapter) crash(t *testing.T) *adapter {
	t.Helper()
	if a.fault.crash != nil {
		a.fault.crash(a)
	}
	for _, r := range a.all() {
		_ = r.Receiver.Close() // memory's cannot fail
	}
	next := &adapter{memory: a.memory, types: a.types, strict: a.strict, fault: a.fault, over: make(chan struct{})}
	for topic := range a.subscribed {
		next.note(messaging.Subscription{Topic: topic})
	}
	t.Cleanup(func() { close(next.over) })
	return next
}

func (a *adapter) all() []*receiver {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]*receiver{}, a.receivers...)
}

// hang waits for the end of the test.
func (a *adapter) hang() { <-a.over }

type receiver struct {
	messaging.Receiver // memory's
	a                  *adapter
	subscription       messaging.Subscription
	number             int // how many joined before

	mu     sync.Mutex
	held   map[string]*messaging.Message // received and not settled, by id
	late   []*messaging.Message          // for faults
	gone   int                           // how often it was closed, for faults
	copies []event.Envelope              // for faults
}

func (r *receiver) Receive(ctx context.Context) (*messaging.Message, error) {
	if r.a.fault.receive != nil {
		return r.a.fault.receive(ctx, r)
	}
	return r.next(ctx)
}

// next receives from the wrapped receiver.
func (r *receiver) next(ctx context.Context) (*messaging.Message, error) {
	m, err := r.Receiver.Receive(ctx)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.held[m.ID] = m
	}
	return m, err
}

func (r *receiver) Ack(ctx context.Context, m *messaging.Message) error {
	if r.a.fault.ack != nil {
		return r.a.fault.ack(ctx, r, m)
	}
	return r.settle(ctx, m)
}

func (r *receiver) settle(ctx context.Context, m *messaging.Message) error {
	r.mu.Lock()
	delete(r.held, m.ID)
	r.mu.Unlock()
	return r.Receiver.Ack(ctx, m)
}

// settleAll settles whatever is held.
func (r *receiver) settleAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.held {
		_ = r.Receiver.Ack(context.Background(), m) // closed: too late for the fault
	}
}

func (r *receiver) Redeliver(ctx context.Context, m *messaging.Message) error {
	if r.a.fault.redeliver != nil {
		return r.a.fault.redeliver(ctx, r, m)
	}
	return r.Receiver.Redeliver(ctx, m)
}

func (r *receiver) Pause() {
	if r.a.fault.pause != nil {
		r.a.fault.pause(r)
		return
	}
	r.Receiver.Pause()
}

func (r *receiver) Resume() {
	if r.a.fault.resume != nil {
		r.a.fault.resume(r)
		return
	}
	r.Receiver.Resume()
}

func (r *receiver) Close() error {
	if r.a.fault.leave != nil {
		return r.a.fault.leave(r)
	}
	return r.Receiver.Close()
}
