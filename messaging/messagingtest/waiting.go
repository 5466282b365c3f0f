package messagingtest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/count"
)

// testWaiting reads how many messages wait for a subscription that nobody consumes, and again after they were settled. An adapter that is no
// [messaging.SubscriptionReader] passes.
func testWaiting(s *session) {
	reader, ok := s.broker.(messaging.SubscriptionReader)
	if !ok {
		return
	}
	s.leave(s.subscribe("counted", ""))
	before, sent := time.Now(), s.series(8, 3)
	s.publish(sent...)
	state := s.awaitWaiting(reader, int64(len(sent)))
	if !state.Oldest.IsZero() { // clocks may differ by some seconds
		require.WithinDuration(s.t, before, state.Oldest, s.h.Patience, "the oldest message was published at another time")
	}
	s.receiveThese(s.subscribe("counted", ""), sent, nil)
	s.awaitWaiting(reader, 0)
}

// awaitWaiting reads until the number fits: a broker may count a moment late.
func (s *session) awaitWaiting(reader messaging.SubscriptionReader, want int64) messaging.SubscriptionState {
	s.t.Helper()
	type answer struct {
		state messaging.SubscriptionState
		err   error
	}
	var last messaging.SubscriptionState
	for s.ctx.Err() == nil {
		got := within(s, "ReadSubscription", func() answer {
			state, err := reader.ReadSubscription(s.ctx, s.topic, "counted")
			return answer{state, err}
		})
		if s.ctx.Err() == nil {
			require.NoError(s.t, got.err, "read how many messages wait")
			last = got.state
		}
		if fits(&last, want) {
			return last
		}
		select {
		case <-s.ctx.Done():
		case <-time.After(s.h.Patience / 1000):
		}
	}
	require.FailNow(s.t, fmt.Sprintf("%d messages wait, and the adapter says %s%d", want, last.Precision.Words(), last.Messages))
	return last
}

// fits reports whether a number is as right as its precision promises. An estimate may be wrong by a half.
func fits(state *messaging.SubscriptionState, want int64) bool {
	switch state.Precision {
	case count.Estimated:
		return state.Messages >= want-want/2 && state.Messages <= want+want/2
	case count.AtLeast:
		return state.Messages <= want && (state.Messages > 0) == (want > 0)
	default:
		return state.Messages == want
	}
}
