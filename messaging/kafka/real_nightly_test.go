//go:build nightly && (linux || darwin)

package kafka

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/devenv"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/messagingtest"
)

// realConfig is that of a broker with its own limits: a session takes at least 6s.
func realConfig(url string) *Config {
	cfg := configOf(url)
	cfg.SessionTimeout = 6 * time.Second
	return cfg
}

func TestRealConformance(t *testing.T) {
	t.Parallel()
	server, err := devenv.Kafka(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	h := conformance(realConfig(server.URL))
	h.Patience = 3 * time.Minute
	messagingtest.Run(t, h)
}

// relay sends messages as an outbox does: each key in order, and unconfirmed messages again and again.
type relay struct {
	broker    *Broker
	deadline  time.Duration // of a round
	waiting   []event.Envelope
	confirmed int
	down      map[string]int // errors by their class
}

// round publishes some of the waiting messages and keeps the unconfirmed ones.
func (r *relay) round(ctx context.Context) error {
	n := min(20, len(r.waiting))
	ctx, cancel := context.WithTimeout(ctx, r.deadline)
	defer cancel()
	err := r.broker.Publish(ctx, r.waiting[:n])
	var failed map[int]error
	if partial, ok := errors.AsType[*messaging.PublishError](err); ok {
		failed = partial.Failed
	} else if err != nil {
		return err
	}
	var kept []event.Envelope
	for i := range n {
		switch err := failed[i]; {
		case err == nil:
			r.confirmed++
			continue
		case errors.Is(err, messaging.ErrBrokerDown):
			r.down["broker_down"]++
		case errors.Is(err, messaging.ErrUnknown):
			r.down["unknown"]++
		case !errors.Is(err, messaging.ErrBehind):
			return err
		}
		kept = append(kept, r.waiting[i])
	}
	r.waiting = append(kept, r.waiting[n:]...)
	return nil
}

// The broker is killed while messages are sent and received, and stays away for longer than a call of Publish, three times. Nothing is lost,
// nothing changes its order, and nothing has to be started again.
func TestBrokerIsKilled(t *testing.T) {
	t.Parallel()
	server, err := devenv.Kafka(t.Context(), &devenv.Options{Own: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	const keys, perKey, kills = 10, 120, 3
	b := connect(t, realConfig(server.URL))
	r := subscribe(t, b, billing)
	ctx, done := await.Context(t.Context(), t, "the end of the trial")
	defer done()

	var consumer sync.WaitGroup
	received := make(chan []*messaging.Message, 1)
	consumer.Go(func() {
		seen := map[string]bool{}
		var first []*messaging.Message
		for len(first) < keys*perKey {
			m, err := r.Receive(ctx)
			if err != nil || r.Ack(ctx, m) != nil {
				break
			}
			if !seen[m.ID] {
				seen[m.ID] = true
				first = append(first, m)
			}
		}
		received <- first
	})
	out := &relay{broker: b, down: map[string]int{}}
	var all [][]event.Envelope
	for k := range keys {
		all = append(all, series("order", string(rune('a'+k)), perKey))
	}
	for n := range perKey {
		for k := range keys {
			out.waiting = append(out.waiting, all[k][n])
		}
	}
	for kill := range kills {
		out.deadline = 30 * time.Second
		for out.confirmed < keys*perKey*(kill+1)/(kills+1) {
			require.NoError(t, out.round(ctx))
		}
		clear(out.down)
		require.NoError(t, server.Kill())
		out.deadline = 2 * time.Second
		for out.down["broker_down"] == 0 {
			require.NoError(t, out.round(ctx))
		}
		require.NoError(t, server.Restart(ctx))
	}
	out.deadline = 30 * time.Second
	for len(out.waiting) > 0 {
		require.NoError(t, out.round(ctx))
	}
	consumer.Wait()
	first := <-received
	require.Len(t, first, keys*perKey, "lost")
	last := map[string]int64{}
	for _, m := range first {
		require.Equal(t, last[m.RoutingKey]+1, m.Sequence, "key %s", m.RoutingKey)
		last[m.RoutingKey] = m.Sequence
	}
}

func TestRealTopicIsMadeAnew(t *testing.T) {
	t.Parallel()
	server, err := devenv.Kafka(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	topicIsMadeAnew(t, realConfig(server.URL))
}
