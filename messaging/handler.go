package messaging

import (
	"context"
	"errors"
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

// IsPermanent tells whether err, or an error it wraps, was marked by [Permanent].
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
