//go:build unix && nightly

package endurance

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
)

const (
	manyMessages = 10_000
	poisoned     = 100
)

// isPoison reports whether the handler refuses a message until it is mended: one message of each key, at different places.
func isPoison(m *messaging.Message) bool {
	key, err := strconv.Atoi(m.AggregateID[1:])
	return err == nil && int(m.AggregateVersion) == 10+key%40
}

// The handler refuses a hundred of ten thousand messages. What is behind them in their keys waits, the rest flows. It is mended
// while messages still come, the dead letters are replayed, and in the end every effect is there once, in the order of its key.
func TestPoisonIsReplayedAfterTheHandlerIsMended(t *testing.T) {
	s := newSite(t, pulsartest.Server(t))
	box := s.newBox(inbox.Config{PollInterval: 200 * time.Millisecond})
	var mended atomic.Bool
	s.consume(box, messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		if isPoison(m) && !mended.Load() {
			return messaging.Permanent(errors.New("no such customer"))
		}
		return leaveQuietly(ctx, s, m)
	}))
	const settled = "SELECT (SELECT count(*) FROM effects) + (SELECT count(*) FROM inbox_parked) + (SELECT count(*) FROM inbox_dead)"

	require.NoError(t, s.publish(t.Context(), manyMessages/2))
	s.eventually("the first half is handled, waits, or is dead", manyMessages/2, settled)
	require.Equal(t, poisoned, s.mustCount("SELECT count(*) FROM inbox_dead"))
	waiting := s.mustCount("SELECT count(*) FROM inbox_parked")
	require.Equal(t, 2250, waiting, "all that is behind them")

	require.NoError(t, s.publish(t.Context(), manyMessages*3/4))
	mended.Store(true)
	var publishing sync.WaitGroup
	publishing.Go(func() {
		if err := s.publish(t.Context(), manyMessages); err != nil {
			t.Errorf("publish: %v", err)
		}
	})
	replayed := s.replayAll()
	publishing.Wait()
	drained := s.drained()
	v := s.judge()
	t.Logf("endurance poison messages=%d dead=%d waited=%d effects_twice=%d order_violations=%d lost=%d",
		s.published.Load(), replayed, waiting, v.twice, v.disorder, v.lost)
	require.Zero(t, v.twice+v.disorder+v.lost, strings.Join(v.details, "\n"))
	require.True(t, drained, "nothing waits")
	require.Equal(t, poisoned, replayed)
	require.Zero(t, s.mustCount("SELECT count(*) FROM inbox_dead"))
}

// replayAll makes an operator, whose program knows no handler, replay dead letters until there are none.
func (s *site) replayAll() (n int) {
	s.t.Helper()
	box := s.newBox(inbox.Config{})
	by := operator.By{Actor: "ann", Reason: "the handler is mended"}
	for s.mustCount("SELECT count(*) FROM inbox_dead") > 0 {
		moved, err := box.Dead().ReplayAll(s.t.Context(), operator.DeadFilter{}, by, nil)
		require.NoError(s.t, err)
		n += int(moved)
	}
	return n
}
