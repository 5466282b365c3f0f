package messaging

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// BatchHandler handles several messages at once. A [Consumer] with ConsumerConfig.BatchSize uses it; what fails in a
// batch is handled alone, by Handle.
type BatchHandler interface {
	Handler

	// HandleBatch gets messages in the order in which they were received, several of one key perhaps. nil: all are
	// settled. A [*BatchError] names those that are not, and the others are settled; with any other error, and after a
	// panic, none is. Of each key the settled ones are the first: what is behind a failed message of its key counts as
	// failed, named or not.
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
