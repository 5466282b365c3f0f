//go:build unix && nightly

package endurance

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/retry"
)

// Each message of one aggregate fails twice before it succeeds, and one of them fails until all other aggregates are through.
// Effects are there once and in order, and no other message has waited for the failing one. The milliseconds are the ones of `bench hot`.
func TestHotAggregateFailsEachMessageTwice(t *testing.T) {
	const hot, hottest = "k07", manyMessages / keys / 2
	s := newSite(t, pulsartest.Server(t))
	box := s.newBox(inbox.Config{
		Retry:        inbox.RetryPolicy{MaxAttempts: -1, Policy: retry.Policy{Delay: 100 * time.Millisecond, MaxDelay: time.Second}},
		PollInterval: 100 * time.Millisecond,
	})
	var through atomic.Bool
	s.consume(box, messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		if m.AggregateID == hot && (m.Attempt <= 2 || m.AggregateVersion == hottest && !through.Load()) {
			return errMoody
		}
		return leaveQuietly(ctx, s, m)
	}))
	require.NoError(t, s.publish(t.Context(), manyMessages))
	s.eventually("the others are through", manyMessages-manyMessages/keys, "SELECT count(*) FROM effects WHERE key <> ?", hot)
	ready := s.mustCount("SELECT count(*) FROM effects WHERE key = ?", hot)
	through.Store(true)
	drained := s.drained()
	v := s.judge()
	t.Logf("endurance hot messages=%d hot_when_others_were_through=%d effects_twice=%d order_violations=%d lost=%d",
		s.published.Load(), ready, v.twice, v.disorder, v.lost)
	require.Zero(t, v.twice+v.disorder+v.lost, strings.Join(v.details, "\n"))
	require.True(t, drained, "nothing waits")
	require.Less(t, ready, manyMessages/keys, "nobody waited for the hot one")
}
