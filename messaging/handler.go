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

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// Permanent marks err as an error that no retry will cure: the message becomes a dead letter at once. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

// IsPermanent reports whether err, or an error it wraps, was marked by [Permanent].
func IsPermanent(err error) bool {
	var p *permanentError
	return errors.As(err, &p)
}

type retryAfterError struct {
	err   error
	d     time.Duration
	waits bool
}

func (e *retryAfterError) Error() string { return e.err.Error() }
func (e *retryAfterError) Unwrap() error { return e.err }

// RetryAfter asks that the message is not tried again before d has passed. RetryAfter(d, nil) is nil.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &retryAfterError{err: err, d: d}
}

// Postpone is [RetryAfter] for a message that was not tried, because another process is at work on a message that comes before it. It does
// not count for [Message.QueueFull]: it waits for no mended handler, and to keep it elsewhere would not be of use. Postpone(d, nil) is
// nil.
func Postpone(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &retryAfterError{err: err, d: d, waits: true}
}

func waits(err error) bool {
	r, ok := errors.AsType[*retryAfterError](err)
	return ok && r.waits
}

// RetryDelay returns the pause that [RetryAfter] or [Postpone] asked for, and whether it did.
func RetryDelay(err error) (time.Duration, bool) {
	if r, ok := errors.AsType[*retryAfterError](err); ok {
		return r.d, true
	}
	return 0, false
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
	first := slices.Min(slices.Collect(maps.Keys(e.Failed)))
	return fmt.Sprintf("messaging: %d messages of the batch failed, the first is #%d: %v", len(e.Failed), first, e.Failed[first])
}

// Unwrap returns the errors of all messages that failed.
func (e *BatchError) Unwrap() []error {
	return slices.Collect(maps.Values(e.Failed))
}

func (e *BatchError) names(i int) bool {
	_, failed := e.Failed[i]
	return failed
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
