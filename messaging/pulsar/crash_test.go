package pulsar

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/devenv"
	"github.com/oncebox/oncebox/internal/publishing"
	"github.com/oncebox/oncebox/messaging"
)

// relay sends messages as an outbox does: each key in order, what was not confirmed again and again.
type relay struct {
	broker    *Broker
	deadline  time.Duration // of a round
	waiting   []event.Envelope
	down      map[string]int // outcomes, while the broker was down
	confirmed int
}

// round publishes some of the waiting messages and keeps the ones that were not confirmed.
func (r *relay) round(ctx context.Context) error {
	n := min(20, len(r.waiting))
	ctx, cancel := context.WithTimeout(ctx, r.deadline)
	defer cancel()
	err := r.broker.Publish(ctx, r.waiting[:n])
	if err == nil {
		r.waiting, r.confirmed = r.waiting[n:], r.confirmed+n
		return nil
	}
	partial, ok := errors.AsType[*messaging.PublishError](err)
	if !ok {
		return err
	}
	var kept []event.Envelope
	for i := range n {
		switch err := partial.Failed[i]; {
		case err == nil:
			r.confirmed++
		case errors.Is(err, messaging.ErrBrokerDown), errors.Is(err, messaging.ErrUnknown), errors.Is(err, messaging.ErrBehind):
			r.down[publishing.Outcome(err)]++
			kept = append(kept, r.waiting[i])
		default:
			return fmt.Errorf("an outage costs an attempt: %w", err)
		}
	}
	r.waiting = append(kept, r.waiting[n:]...)
	return nil
}

// The broker is killed while messages are sent and received, and stays away for longer than a call of Publish. Nothing
// is lost, nothing changes its order, and nobody has to be restarted.
func TestBrokerIsKilled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	server, err := devenv.Pulsar(ctx, &devenv.Options{Own: true, Volatile: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })

	const keys, perKey = 10, 60
	cfg := &Config{
		URL: server.URL, AdminURL: server.AdminURL, Subscriptions: []messaging.Subscription{{Topic: "order", Name: "s"}},
		ConnectTimeout: hang, PublishTimeout: hang, CloseTimeout: hang,
	}
	b := connect(t, cfg)
	r, err := b.Subscribe(ctx, cfg.Subscriptions[0])
	require.NoError(t, err)

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

	out := &relay{broker: b, deadline: hang, waiting: series("order", keys, perKey), down: map[string]int{}}
	for out.confirmed < keys*perKey/3 {
		require.NoError(t, out.round(ctx))
	}
	require.Empty(t, out.down)
	require.NoError(t, server.Kill())
	out.deadline = 2 * time.Second
	for out.down["unknown"] == 0 || out.down["broker_down"] == 0 {
		require.NoError(t, out.round(ctx))
	}
	// A process that starts now waits for the broker.
	connected := make(chan error, 1)
	go func() {
		patient := *cfg
		patient.ConnectTimeout = 10 * time.Minute
		late, err := Connect(ctx, &patient)
		if err == nil {
			err = late.Close()
		}
		connected <- err
	}()
	require.NoError(t, server.Restart(ctx))
	for len(out.waiting) > 0 {
		require.NoError(t, out.round(ctx))
	}
	require.NoError(t, <-connected)

	consumer.Wait()
	first := <-received
	require.Len(t, first, keys*perKey, "lost")
	last := map[string]int64{}
	for _, m := range first {
		require.Equal(t, last[m.RoutingKey]+1, m.Sequence, "key %s", m.RoutingKey)
		last[m.RoutingKey] = m.Sequence
	}
	t.Logf("while the broker was down: %v", out.down)
}
