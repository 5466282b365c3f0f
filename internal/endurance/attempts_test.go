//go:build unix && nightly

package endurance

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/retry"
)

// The handler refuses the fifth message of every key a few times. Nothing is given back to the broker, which would bring it
// behind later ones: each message comes once, and has its effect in its turn.
func TestFailingMessageHoldsItsKey(t *testing.T) {
	s := newSite(t, pulsartest.Server(t))
	box := s.newBox(inbox.Config{})
	var mu sync.Mutex
	tries := map[string]int{}
	s.consume(box, messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		mu.Lock()
		tries[m.ID]++
		n := tries[m.ID]
		mu.Unlock()
		if m.AggregateVersion == 5 && n <= 2 {
			return errMoody
		}
		return leaveQuietly(ctx, s, m)
	}))
	require.NoError(t, s.publish(t.Context(), 20*keys))
	require.True(t, s.drained(), "all is handled")
	v := s.judge()
	require.Zero(t, v.twice+v.disorder+v.lost, v.details)
	mu.Lock()
	defer mu.Unlock()
	for id, n := range tries {
		require.Contains(t, []int{1, 3}, n, id)
	}
	require.Len(t, tries, 20*keys)
}

// The broker counts deliveries in its memory. Between the failures of a message its consumer goes and its topic is loaded
// anew, as after a restart of the broker, so that each delivery is the first one. The message is given up after as many tries
// as are allowed nevertheless.
func TestAttemptsOutliveBrokerAndConsumer(t *testing.T) {
	const allowed = 6
	ns := pulsartest.Open(t)
	s := newSite(t, pulsartest.Server(t))
	var mu sync.Mutex
	tries, firsts, inRound := 0, 0, 0
	h := messaging.HandlerFunc(func(_ context.Context, m *messaging.Message) error {
		mu.Lock()
		defer mu.Unlock()
		if tries++; m.Attempt == 1 {
			firsts++
		}
		if inRound++; inRound < 2 {
			return errMoody
		}
		return messaging.RetryAfter(30*time.Minute, errMoody) // the third try is that of the next round
	})
	require.NoError(t, s.publish(t.Context(), 1))
	for round := range 3 {
		// As a process that has just started. The first messages would be counted before the handler, and prove nothing here.
		box := s.newBox(inbox.Config{Retry: inbox.RetryPolicy{Tries: 100, MaxAttempts: allowed, Policy: retry.Policy{Delay: time.Hour}}, CrashGuard: -1})
		mu.Lock()
		inRound = 0
		mu.Unlock()
		c := s.consume(box, h)
		s.eventually("it has failed twice more", min(2*(round+1), allowed),
			"SELECT coalesce((SELECT max(attempts) FROM inbox_attempt), 0) + coalesce((SELECT max(attempts) FROM inbox_dead), 0)")
		c.stop()
		for p := range 4 {
			require.NoError(t, ns.Admin(t.Context(), http.MethodPut, "/persistent/public/default/"+s.topic+fmt.Sprintf("-partition-%d/unload", p), ""))
		}
		if round == 0 {
			require.Less(t, tries, allowed)
		}
	}
	require.Equal(t, 1, s.mustCount("SELECT count(*) FROM inbox_dead"))
	require.Equal(t, allowed, s.mustCount("SELECT attempts FROM inbox_dead"))
	require.Equal(t, allowed, tries)
	require.Greater(t, firsts, 1, "the broker has forgotten")
}
