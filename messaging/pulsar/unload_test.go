//go:build !race

// Without the race detector for the reason given in trouble_test.go.

package pulsar

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/publishing"
	"github.com/oncebox/oncebox/internal/pulsartest"
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

// The broker lets go of a topic again and again while it is published to: each time the client connects anew and sends
// again what it has no receipt for. Nothing is lost and the first copies of a key are in order; also if the broker
// deduplicates, and answers some of what comes again with the receipt of a duplicate.
func TestTopicIsUnloadedUnderLoad(t *testing.T) {
	t.Parallel()
	for name, deduplicates := range map[string]string{"plain": "false", "deduplicating": "true"} {
		t.Run(name, func(t *testing.T) {
			n := pulsartest.Open(t)
			require.NoError(t, n.Admin(t.Context(), http.MethodPost, "/namespaces/"+n.Name+"/deduplication", deduplicates))
			unloadUnderLoad(t, n)
		})
	}
}

func unloadUnderLoad(t *testing.T, n *pulsartest.Namespace) {
	t.Helper()
	cfg := declared(n, "order", "s")
	b := connect(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()

	const keys, perKey, unloads, sentBetween = 10, 100, 8, 200
	out := &relay{broker: b, waiting: series("order", keys, perKey), down: map[string]int{}}
	var operator sync.WaitGroup
	more, unloaded := make(chan struct{}, 1), make(chan struct{})
	operator.Go(func() {
		defer close(unloaded)
		for range unloads {
			select {
			case <-more: // something was sent since the last one
			case <-ctx.Done():
			}
			if err := n.Admin(ctx, http.MethodPut, "/persistent/"+n.Name+"/order/unload", ""); err != nil {
				t.Error(err)
				return
			}
		}
	})
	busy, committed, noted := true, perKey, 0
	for round := 0; busy || len(out.waiting) > 0; round++ {
		if busy && len(out.waiting) < 2*keys {
			out.waiting = append(out.waiting, series("order", keys, committed+perKey)[keys*committed:]...)
			committed += perKey
		}
		out.deadline = hang
		if round%2 == 0 {
			out.deadline = 20 * time.Millisecond // an unload outlasts it
		}
		require.NoError(t, out.round(ctx))
		if out.confirmed-noted > sentBetween {
			select {
			case more <- struct{}{}:
				noted = out.confirmed
			default: // an unload is due already
			}
		}
		select {
		case <-unloaded:
			busy = false
		default:
		}
	}
	operator.Wait()

	r, err := b.Subscribe(t.Context(), messaging.Subscription{Topic: "order", Name: "s"})
	require.NoError(t, err)
	last := map[string]int64{}
	for _, m := range receiveAll(t, r, keys*committed) {
		require.Equal(t, last[m.RoutingKey]+1, m.Sequence, "key %s", m.RoutingKey)
		last[m.RoutingKey] = m.Sequence
	}
	t.Logf("%d messages, without a receipt at first: %v", keys*committed, out.down)
}
