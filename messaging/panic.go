package messaging

import (
	"context"
	"fmt"
	"runtime/debug"
)

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
