package messaging

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"time"
)

// Handler handles one message. nil: settled, it may be acknowledged. An error: not settled, it must come again.
// Handlers run concurrently for different keys.
type Handler interface {
	Handle(ctx context.Context, m *Message) error
}

// HandlerFunc is a function as a [Handler].
type HandlerFunc func(ctx context.Context, m *Message) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, m *Message) error { return f(ctx, m) }

// marked is an error with a mark, which says what is to become of the message. Each kind of mark is a type: an error may have several.
type marked[M any] struct {
	error

	mark M
}

func (e *marked[M]) Unwrap() error { return e.error }

// mark returns nil for nil.
func mark[M any](err error, m M) error {
	if err == nil {
		return nil
	}
	return &marked[M]{err, m}
}

// markOf returns the mark of err, or of an error that it wraps, and whether there is one.
func markOf[M any](err error) (m M, ok bool) {
	if e, ok := errors.AsType[*marked[M]](err); ok {
		return e.mark, true
	}
	return m, false
}

type (
	permanent struct{}
	left      struct{}
	later     struct {
		pause time.Duration
		waits bool // for another process
	}
)

// Permanent marks err as an error that no retry will cure: the message becomes a dead letter at once. Permanent(nil) is nil.
func Permanent(err error) error { return mark(err, permanent{}) }

// IsPermanent reports whether err, or an error it wraps, was marked by [Permanent].
func IsPermanent(err error) bool {
	_, is := markOf[permanent](err)
	return is
}

// LeaveAtBroker marks err as that of a message that can be neither handled nor stored. The [Consumer] neither acknowledges it nor tries it
// again, and goes on with the next message of its key. The broker keeps it, and delivers it again after the next connection.
// LeaveAtBroker(nil) is nil.
func LeaveAtBroker(err error) error { return mark(err, left{}) }

// IsLeft reports whether err, or an error it wraps, was marked by [LeaveAtBroker].
func IsLeft(err error) bool {
	_, is := markOf[left](err)
	return is
}

// RetryAfter asks that the message is not tried again before d has passed. RetryAfter(d, nil) is nil.
func RetryAfter(d time.Duration, err error) error { return mark(err, later{pause: d}) }

// Postpone is [RetryAfter] for a message that was not tried, because another process is at work on a message that comes before it. It does
// not count for [Message.QueueFull]: it waits for no mended handler, and to keep it elsewhere would not be of use. Postpone(d, nil) is
// nil.
func Postpone(d time.Duration, err error) error { return mark(err, later{pause: d, waits: true}) }

// RetryDelay returns the pause that [RetryAfter] or [Postpone] asked for, and whether it did.
func RetryDelay(err error) (time.Duration, bool) {
	asked, ok := markOf[later](err)
	return asked.pause, ok
}

// BatchHandler handles several messages at once. A [Consumer] with ConsumerConfig.BatchSize uses it; what fails in a
// batch is handled alone, by Handle.
type BatchHandler interface {
	Handler

	// HandleBatch gets messages in the order in which they were received, several of one key perhaps. nil: all are settled. A [*BatchError]
	// names the messages that are not settled, and the others are; with any other error, and after a panic, none is. Of each key the
	// settled ones are the first: what is behind a failed message of its key counts as failed, named or not.
	//
	// The context carries none of the messages; see [NewContext]. Calls run concurrently, for different keys.
	HandleBatch(ctx context.Context, msgs []*Message) error
}

// BatchError names the messages of one call of HandleBatch that are not settled, by their index.
type BatchError struct {
	// Failed has the error of each message that is not settled, by its index in the call, from 0.
	Failed map[int]error
}

func (e *BatchError) Error() string {
	if len(e.Failed) == 0 {
		return "messaging: no message of the batch failed"
	}
	return fmt.Sprintf("messaging: %d messages of the batch failed, %s", len(e.Failed), firstOf(e.Failed))
}

// Unwrap returns the errors of all messages that failed.
func (e *BatchError) Unwrap() []error {
	return slices.Collect(maps.Values(e.Failed))
}

// firstOf shows the failure with the lowest index, where a person looks first.
func firstOf(failed map[int]error) string {
	if len(failed) == 0 {
		return "but the error names none of them"
	}
	first := slices.Min(slices.Collect(maps.Keys(failed)))
	return fmt.Sprintf("the first is the one with index %d: %v", first, failed[first])
}

// PanicError is what a panic of a handler becomes: an error like any other, so that the message is tried again.
type PanicError struct {
	// Value is what the handler panicked with.
	Value any
	// Stack is where.
	Stack []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("messaging: the handler panicked: %v", e.Value)
}

// call runs h and turns a panic into a [*PanicError].
func call(ctx context.Context, h Handler, m *Message) (err error) {
	defer recovered(&err)
	return h.Handle(ctx, m)
}

// callBatch does the same with a batch.
func callBatch(ctx context.Context, h BatchHandler, msgs []*Message) (err error) {
	defer recovered(&err)
	return h.HandleBatch(ctx, msgs)
}

// recovered is to be deferred.
func recovered(err *error) {
	if v := recover(); v != nil {
		*err = &PanicError{Value: v, Stack: debug.Stack()}
	}
}
