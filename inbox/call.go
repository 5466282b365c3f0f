package inbox

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/calls"
	"github.com/oncebox/oncebox/internal/skipped"
	"github.com/oncebox/oncebox/internal/unit"
	"github.com/oncebox/oncebox/messaging"
)

// timed returns the context of one try of a handler and of its transaction.
func (c *consumer) timed(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.timeout < 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, c.timeout, (*lateError)(&c.timeout))
}

// lateError is the cause with which the context of a handler is cancelled when the handler takes too long.
type lateError time.Duration

func (e *lateError) Error() string {
	return fmt.Sprintf("inbox: the handler has not ended within %s: if it needs longer, set Config.HandlerTimeout "+
		"(ONCEBOX_INBOX_HANDLER_TIMEOUT) or give its consumer inbox.HandlerTimeout", time.Duration(*e))
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
		l.timer = time.AfterFunc(timeout, func() { l.cancel((*lateError)(&timeout)) })
	}
}

// watched runs a handler within the unit that ctx carries. If a handler succeeds and never asks for its unit, a warning is logged, once for
// each consumer and topic: the handler may have used a pool of its own, and those changes are made twice when a message is tried twice.
//
// It returns whether the message was skipped: the handler or its middleware has settled it without handling it, see messaging.Skip.
func (c *consumer) watched(ctx context.Context, topic string, handle func(ctx context.Context) error) (skip bool, err error) {
	ctx, mark := skipped.With(ctx)
	err = handle(ctx)
	skip = err == nil && mark.IsSet()
	if err == nil && !skip && !c.withoutUnit && !unit.Of(ctx).Used() && c.box.first(logged{consumer: c.name, topic: topic}) {
		c.box.store.Log.WarnContext(ctx, "oncebox: a handler succeeded without using its unit of work. Statements that it sends through another pool "+
			"are not part of the transaction, and are repeated if the message is handled again: use uow.MustFromContext(ctx), inbox.Leased for calls "+
			"to other systems, or inbox.WithoutUnit if it needs no transaction", "consumer", c.name, "topic", topic)
	}
	return skip, err
}

// Key returns an idempotency key for calls to other systems: it is the same in every try of a message, in every process, for ever, and
// different for each consumer, tenant, source and message id. It has 32 letters and digits, so that it fits into an Idempotency-Key header.
// A handler that makes several calls needs a key for each: step.Call gives it. Key may also be the primary key of a table of your own.
//
// Key returns "" if ctx is not the context of a handler of this package. A [BatchFunc] passes the result of [messaging.NewContext] to get
// the key of one message.
func Key(ctx context.Context) string {
	consumer, ok := ctx.Value(consumerKey{}).(string)
	m, handling := messaging.FromContext(ctx)
	if !ok || !handling {
		return ""
	}
	return store.Identify(consumer, m).OutsideKey()
}

// stepKey is the key of one step of the message.
func (l *lease) stepKey(name string) string { return l.id.OutsideKey(name) }

type consumerKey struct{}

// named adds the name of the consumer to the context of a handler, and keeps unreadable messages from it.
type named struct {
	consumer any // a string: to put it into an interface for each message would be an object each time
	next     messaging.Handler
}

func (n named) Handle(ctx context.Context, m *messaging.Message) error {
	if err := messaging.Unreadable(m); err != nil {
		return err
	}
	return n.next.Handle(calls.Begin(context.WithValue(ctx, consumerKey{}, n.consumer)), m)
}

// call runs a handler and turns a panic into an error.
func call(ctx context.Context, h messaging.Handler, m *messaging.Message) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &messaging.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return h.Handle(ctx, m)
}
