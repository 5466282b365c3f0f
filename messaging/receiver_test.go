package messaging_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

// fakeReceiver hands out given messages, and records the calls that settle them.
type fakeReceiver struct {
	incoming chan *messaging.Message
	dies     chan error
	ackError error

	mu       sync.Mutex
	received int
	acked    []string
	closed   bool
}

func newFakeReceiver(msgs ...*messaging.Message) *fakeReceiver {
	r := &fakeReceiver{incoming: make(chan *messaging.Message, 10_000), dies: make(chan error, 1)}
	for _, m := range msgs {
		r.incoming <- m
	}
	return r
}

func (r *fakeReceiver) Receive(ctx context.Context) (*messaging.Message, error) {
	select {
	case m := <-r.incoming:
		r.mu.Lock()
		defer r.mu.Unlock()
		r.received++
		return m, nil
	case err := <-r.dies:
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (r *fakeReceiver) Ack(_ context.Context, m *messaging.Message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return messaging.ErrClosed
	}
	if r.ackError != nil {
		return r.ackError
	}
	r.acked = append(r.acked, m.ID)
	return nil
}

func (*fakeReceiver) Redeliver(context.Context, *messaging.Message) error { return nil }
func (*fakeReceiver) Pause()                                              {}
func (*fakeReceiver) Resume()                                             {}

func (r *fakeReceiver) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	return nil
}

func (r *fakeReceiver) ackedIDs() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.acked...)
}

func (r *fakeReceiver) receivedCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.received
}

func (r *fakeReceiver) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// msg returns the n-th message of an aggregate. Its id shows both.
func msg(aggregate string, n int) *messaging.Message {
	return messaging.NewMessage(event.Envelope{
		ID: fmt.Sprintf("%s%d", aggregate, n), Type: "thing.happened", Source: "test", TenantID: "t1", Topic: "thing",
		AggregateType: "thing", AggregateID: aggregate, RoutingKey: aggregate,
	}, 1, nil)
}
