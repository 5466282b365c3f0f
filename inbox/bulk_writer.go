package inbox

import (
	"context"
	"slices"

	"github.com/oncebox/oncebox/internal/skipped"
	"github.com/oncebox/oncebox/messaging"
)

// bulkWriter is a bulk writer with the middleware of its consumer.
type bulkWriter struct {
	write  BatchFunc
	within []messaging.Middleware
}

// call calls the writer with the messages that the middleware lets pass. skips reports which messages the middleware has skipped.
//
// The middleware of the first message is around that of the second, and so on, and the last one is around the call. So the middleware of
// each message sees the call as if the message were handled alone. If the writer fails, call fails, even if middleware turned the error
// into nil: the messages are then handled alone, each within its own middleware.
func (b *bulkWriter) call(ctx context.Context, msgs []*messaging.Message) (skips []bool, err error) {
	skips = make([]bool, len(msgs))
	if len(b.within) == 0 {
		return skips, b.write(ctx, msgs)
	}
	var (
		passing []*messaging.Message
		failed  error // of the writer
		enter   func(n int) error
	)
	enter = func(n int) error {
		if n == len(msgs) {
			if failed = nil; len(passing) > 0 {
				failed = b.write(ctx, passing)
			}
			return failed
		}
		before, entered := passing, false
		last := messaging.HandlerFunc(func(_ context.Context, m *messaging.Message) error {
			entered, passing = true, slices.Concat(before, []*messaging.Message{m})
			return enter(n + 1)
		})
		alone, mark := skipped.With(messaging.NewContext(ctx, msgs[n]))
		err := messaging.Chain(last, b.within...).Handle(alone, msgs[n])
		if skips[n] = mark.IsSet(); err != nil || entered {
			return err
		}
		passing = before
		return enter(n + 1)
	}
	if err = enter(0); err == nil {
		err = failed
	}
	return skips, err
}
