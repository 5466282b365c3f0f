package inbox

import (
	"context"
	"fmt"
	"time"
)

// answerTimeout is how long each statement of the inbox may take, besides waiting for locks. A host that vanishes, or a proxy that swallows
// what it acknowledges, never answers: the connection is closed then, and the message is tried again on another one.
const answerTimeout = 15 * time.Second

// patience is answerTimeout and the time that a statement may wait for a lock.
func (i *Inbox) patience() time.Duration { return i.answer + i.cfg.LockTimeout }

// bounded is for statements that are not run by Inbox.sql, which bounds its own.
func (i *Inbox) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, i.patience(), &silentError{i.patience()})
}

// silentError is the cause with which a statement is cancelled that got no answer. It makes its text only when that is read.
type silentError struct{ timeout time.Duration }

func (e *silentError) Error() string {
	return fmt.Sprintf("inbox: the database has not answered for %s", e.timeout)
}

// timed is for one try of a handler, with all that belongs to its transaction.
func (w *wrapped) timed(ctx context.Context) (context.Context, context.CancelFunc) {
	if w.timeout < 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, w.timeout, late(w.timeout))
}

// lateError is the cause with which the context of a handler is cancelled that takes too long.
type lateError struct{ timeout time.Duration }

func late(timeout time.Duration) error { return &lateError{timeout} }

func (e *lateError) Error() string {
	return fmt.Sprintf("inbox: the handler has not ended within %s: if it needs longer, set Config.HandlerTimeout "+
		"(ONCEBOX_INBOX_HANDLER_TIMEOUT) or give its consumer inbox.HandlerTimeout", e.timeout)
}

// Unwrap makes it a [context.DeadlineExceeded].
func (*lateError) Unwrap() error { return context.DeadlineExceeded }

// explainLate adds to the error of a try that it took too long, if that is so.
func explainLate(timed context.Context, err error) error {
	if cause, ok := context.Cause(timed).(*lateError); ok && err != nil { //nolint:errorlint // the cause itself
		return fmt.Errorf("%w (it ended with: %w)", cause, err)
	}
	return err
}

// tooLate is an error if a handler has not ended in time. What it returned may come of the cancellation, and it may have swallowed that.
func tooLate(ctx context.Context) error {
	if cause, ok := context.Cause(ctx).(*lateError); ok { //nolint:errorlint // the cause itself
		return cause
	}
	return nil
}

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

// reset begins anew, with another timeout.
func (l *limit) reset(timeout time.Duration) {
	l.stop()
	if timeout >= 0 {
		l.timer = time.AfterFunc(timeout, func() { l.cancel(late(timeout)) })
	}
}
