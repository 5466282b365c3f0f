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

// Handler handles one message. If it returns nil, the message is settled and may be acknowledged. After an error the message is tried again. Handlers
// run at the same time for different keys.
type Handler interface {
	Handle(ctx context.Context, m *Message) error
}

// HandlerFunc makes a function a [Handler].
type HandlerFunc func(ctx context.Context, m *Message) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, m *Message) error { return f(ctx, m) }

// marked is an error with a mark that decides what happens to the message. Each kind of mark is a type of its own, so an error can carry several.
type marked[M any] struct {
	error

	mark M
}

func (e *marked[M]) Unwrap() error { return e.error }

// mark returns err with the mark m; nil for nil.
func mark[M any](err error, m M) error {
	if err == nil {
		return nil
	}
	return &marked[M]{err, m}
}

// markOf returns the mark of this type that err or an error within it carries, and whether there is one.
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
		waits bool // the pause waits for another process, not for a mended handler
	}
)

// Permanent marks err as an error that another try cannot mend: package inbox makes the message a dead letter at once. Permanent(nil) is nil.
func Permanent(err error) error { return mark(err, permanent{}) }

// IsPermanent reports whether err, or an error it wraps, was marked by [Permanent].
func IsPermanent(err error) bool {
	_, is := markOf[permanent](err)
	return is
}

// LeaveAtBroker marks the error of a message that can be neither handled nor stored. The [Consumer] does not acknowledge the message and does not try
// it again; it goes on with the next message of the key. The broker keeps the message, and delivers it again after the next connection.
// LeaveAtBroker(nil) is nil.
func LeaveAtBroker(err error) error { return mark(err, left{}) }

// IsLeft reports whether err, or an error it wraps, was marked by [LeaveAtBroker].
func IsLeft(err error) bool {
	_, is := markOf[left](err)
	return is
}

// RetryAfter marks err so that the next try of the message waits for d. RetryAfter(d, nil) is nil.
func RetryAfter(d time.Duration, err error) error { return mark(err, later{pause: d}) }

// Postpone is [RetryAfter] for a message that was not tried, because another process still handles an earlier message. It does not count
// for [Message.QueueFull]: the message waits for that process and not for a mended handler, so keeping it elsewhere would not help.
// Postpone(d, nil) is nil.
func Postpone(d time.Duration, err error) error { return mark(err, later{pause: d, waits: true}) }

// RetryDelay returns the pause that [RetryAfter] or [Postpone] has set, and whether there is one.
func RetryDelay(err error) (time.Duration, bool) {
	asked, ok := markOf[later](err)
	return asked.pause, ok
}

// BatchHandler handles several messages in one call. A [Consumer] with ConsumerConfig.BatchSize uses it. A message that fails in a batch is tried
// again alone, with Handle.
type BatchHandler interface {
	Handler

	// HandleBatch gets messages in the order in which they were received; several may have the same key. nil means that all are settled. With a
	// [*BatchError] the named messages are not settled, and the others are. With any other error, and after a panic, no message is settled. Messages
	// behind a failed message of their key count as failed, whether they are named or not.
	//
	// The context carries none of the messages; see [NewContext]. Calls for different keys run at the same time.
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

// firstOf returns the text of the failure with the lowest index, where a reader looks first.
func firstOf(failed map[int]error) string {
	if len(failed) == 0 {
		return "but the error names none of them"
	}
	first := slices.Min(slices.Collect(maps.Keys(failed)))
	return fmt.Sprintf("the first is the one with index %d: %v", first, failed[first])
}

// PanicError is the error that a panic of a handler becomes. The message is tried again, as after any other error.
type PanicError struct {
	// Value is the value that the handler passed to panic.
	Value any
	// Stack is the stack of the goroutine that panicked.
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

// callBatch runs h for a batch and turns a panic into a [*PanicError].
func callBatch(ctx context.Context, h BatchHandler, msgs []*Message) (err error) {
	defer recovered(&err)
	return h.HandleBatch(ctx, msgs)
}

// recovered turns a panic into a [*PanicError]. It must be deferred directly, else recover does nothing.
func recovered(err *error) {
	if v := recover(); v != nil {
		*err = &PanicError{Value: v, Stack: debug.Stack()}
	}
}
