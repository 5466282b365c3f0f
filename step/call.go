package step

import (
	"context"
	"fmt"

	"github.com/oncebox/oncebox/internal/steps"
)

// Call calls fn, which makes one call to another service, and stores its result. When the handler runs again, for a request that is retried or taken
// over, or for a message that is tried again or replayed, Call returns the stored result and does not call fn. ctx is that of the handler.
//
// Pass key to the other side, so that it recognizes a repeated call: if the process dies after the call and before its result is stored, the call is made
// again. The key is the same in every run of this step for this request or message, has 32 letters and digits, and fits into any header. It differs from
// request to request. docs/calls.md says when to send a key of your own. If the other side knows no keys, use [AtMostOnce].
//
// name identifies the step within the handler, in at most 255 bytes. Each name is used once in a run, so in a loop it must contain the number of the
// round. The result is stored as JSON, in clear, so it should hold no secrets. A result that cannot be encoded, or cannot be decoded after a deployment,
// is an error, and makes a dead letter of a message. Results are removed with the answer of the request, or when the message is settled.
//
// An error of fn is returned as it is and stores nothing. ErrLeaseLost, of package idempotency or inbox, means that the result was not stored, and that
// the handler should end.
func Call[T any](ctx context.Context, name string, fn func(ctx context.Context, key string) (T, error)) (result T, err error) {
	runner, err := runnerOf(ctx, "Call", name)
	if err != nil {
		return result, err
	}
	err = runner.Step(ctx, name, &result, func(ctx context.Context, key string) (err error) {
		result, err = fn(ctx, key)
		return err
	})
	return result, err
}

// runnerOf returns what runs the steps of the handler of ctx.
func runnerOf(ctx context.Context, function, name string) (steps.Runner, error) {
	runner, ok := steps.RunnerFrom(ctx)
	if !ok {
		return nil, fmt.Errorf("step: %s %q was called outside of a handler under a lease: pass the context that the handler got, and mount the handler "+
			"with inbox.Leased, or with httpmw.IdempotencyConfig.Lease and Required", function, name)
	}
	return runner, nil
}
