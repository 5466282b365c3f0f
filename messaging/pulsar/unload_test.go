//go:build !race

// Without the race detector for the reason given in trouble_test.go.

package pulsar

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
)

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
