package step

import (
	"context"
	"errors"
	"fmt"

	"github.com/oncebox/oncebox/internal/steps"
)

const (
	// beginning is added to the name of a step. The step with this name is stored before the call.
	beginning = ":begin"
	// longestName is the longest name of a step, in bytes, without the beginning.
	longestName = 255 - len(beginning)
)

// AtMostOnce makes a call that must rather be left out than made twice, to another side that knows no keys: it sends a mail, for example. It has two
// parts. prepare does everything that can fail before the call has an effect, such as the connection to the server. The function send, which prepare
// returns, makes the call.
//
//	outcome, err := step.AtMostOnce(ctx, "mail", "unclear", func(ctx context.Context) (func() (string, error), error) {
//		server, err := connect(ctx)
//		return func() (string, error) { return "sent", server.Send(text) }, err
//	})
//
// send is called at most once for a request or message, in all runs of the handler, in all processes together. Before send is called, its beginning is
// stored and committed. A later run that finds the beginning and no result calls neither prepare nor send. It returns unclear: the call may have been
// made, or not. AtMostOnce also returns unclear, and no error, if send returns an error, because a call without an answer may have had its effect. A
// result that is stored stays, unclear too. Show what is unclear to a person. send may log its error.
//
// An error of prepare is returned as it is and stores nothing: a later run calls prepare again. If the other side refuses for ever, prepare returns no
// error, and a send that returns a result for this, such as "refused". prepare may be called several times, and must not have the effect itself. Its
// context ends when AtMostOnce returns, so context.AfterFunc can close what prepare has opened.
//
// name is like that of [Call], and has at most 249 bytes. Results are stored and removed like those of Call, so a message that comes again after the
// retention of the inbox, or a request with another Idempotency-Key, is another call. ErrLeaseLost, of package idempotency or inbox, means that the
// beginning or the result was not stored, and that the handler should end. In a request idempotency.StepOnce is an alternative: it refuses each retry
// until an operator has found out whether the call was made.
func AtMostOnce[T any](
	ctx context.Context, name string, unclear T, prepare func(ctx context.Context) (send func() (T, error), err error),
) (result T, err error) {
	runner, err := runnerOf(ctx, "AtMostOnce", name)
	if err != nil {
		return result, err
	}
	if name == "" || len(name) > longestName {
		return result, fmt.Errorf("step: AtMostOnce %q: the name has to have 1 to %d bytes", name, longestName)
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	var send func() (T, error) // nil: an earlier run has begun
	var unprepared error
	begun := true
	err = runner.Step(steps.Silent(ctx), name+beginning, &begun, func(ctx context.Context, _ string) error {
		if send, unprepared = prepare(ctx); unprepared == nil && send == nil {
			return errors.New("prepare returned neither a function nor an error: return the function that makes the call")
		}
		return unprepared
	})
	switch {
	case unprepared != nil:
		return result, unprepared
	case err != nil:
		return result, named(name, err)
	}
	err = runner.Step(ctx, name, &result, func(context.Context, string) error {
		result = unclear
		if send == nil {
			return nil
		}
		if got, err := send(); err == nil { // an error may not lead to another call
			result = got
		}
		return nil
	})
	if err != nil {
		err = named(name, err)
	}
	return result, err
}

// named adds the call, because the error of a step names a step that the caller does not know.
func named(name string, err error) error { return fmt.Errorf("step: AtMostOnce %q: %w", name, err) }
