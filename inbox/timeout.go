package inbox

import (
	"context"
	"fmt"
	"time"
)

// timed returns the context of one try of a handler and of its transaction.
func (w *wrapped) timed(ctx context.Context) (context.Context, context.CancelFunc) {
	if w.timeout < 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, w.timeout, late(w.timeout))
}

// lateError is the cause with which the context of a handler is cancelled when the handler takes too long.
type lateError struct{ timeout time.Duration }

func late(timeout time.Duration) error { return &lateError{timeout} }

func (e *lateError) Error() string {
	return fmt.Sprintf("inbox: the handler has not ended within %s: if it needs longer, set Config.HandlerTimeout "+
		"(ONCEBOX_INBOX_HANDLER_TIMEOUT) or give its consumer inbox.HandlerTimeout", e.timeout)
}

// Unwrap makes it a [context.DeadlineExceeded].
func (*lateError) Unwrap() error { return context.DeadlineExceeded }

// explainLate returns err, or, if the try took too long, an error that says so and holds err.
func explainLate(timed context.Context, err error) error {
	if cause, ok := context.Cause(timed).(*lateError); ok && err != nil { //nolint:errorlint // the cause itself
		return fmt.Errorf("%w (it ended with: %w)", cause, err)
	}
	return err
}

// tooLate returns an error if the handler has not ended in time. The handler itself may have returned nil although its context was cancelled.
func tooLate(ctx context.Context) error {
	if cause, ok := context.Cause(ctx).(*lateError); ok { //nolint:errorlint // the cause itself
		return cause
	}
	return nil
}

// seconds converts a number of seconds.
func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// limit cancels a try whose timeout begins more than once: with each message of a batch, or when it is known which handler is called.
type limit struct {
	timer  *time.Timer
	cancel context.CancelCauseFunc
}

func newLimit(cancel context.CancelCauseFunc, timeout time.Duration) *limit {
	l := &limit{cancel: cancel}
	l.reset(timeout)
	return l
}

func (l *limit) stop() {
	if l.timer != nil {
		l.timer.Stop()
	}
}

// reset starts the time again.
func (l *limit) reset(timeout time.Duration) {
	l.stop()
	if timeout >= 0 {
		l.timer = time.AfterFunc(timeout, func() { l.cancel(late(timeout)) })
	}
}
