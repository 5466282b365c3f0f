package inbox_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/nightly"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/retry"
	"github.com/oncebox/oncebox/telemetry"
)

// Two processes get the same messages at the same time, as at a takeover that takes for ever, and handlers fail now and
// then: every effect once, in the order of its key.
func TestTwoConsumersOfTheSameMessages(t *testing.T) {
	t.Parallel()
	for seed := range nightly.Seeds(t, 1, 10) {
		newWorld(t).twoConsumers(rand.New(rand.NewPCG(seed, 0)))
	}
}

func (w *world) twoConsumers(rng *rand.Rand) {
	t := w.t
	t.Helper()
	const keys, perKey = 8, 15
	broker := memory.New(nil)
	defer broker.Close()
	var msgs []event.Envelope
	failures := map[string]int{} // how many tries of a message fail in each process
	for n := range perKey {
		for key := range keys {
			m := ordered(fmt.Sprintf("%d/%02d", key, n), strconv.Itoa(key))
			msgs = append(msgs, m.Envelope)
			if rng.IntN(5) == 0 {
				failures[m.ID] = 1 + rng.IntN(4)
			}
		}
	}
	require.NoError(t, broker.Publish(t.Context(), msgs))

	var processes sync.WaitGroup
	for process := range 2 {
		receiver, err := broker.Subscribe(t.Context(), messaging.Subscription{Topic: "order", Name: strconv.Itoa(process)})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var mu sync.Mutex
		settled, tries := map[string]bool{}, map[string]int{}
		box := w.hasty(nil) // what fails several times is parked
		once := box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
			err := w.effect(ctx, m)
			mu.Lock()
			defer mu.Unlock()
			if tries[m.ID]++; tries[m.ID] <= failures[m.ID] {
				return errNotNow
			}
			return err
		}))
		runParked(t, box)
		counted := messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
			err := once.Handle(ctx, m)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			settled[m.ID] = true
			if len(settled) == len(msgs) {
				stop()
			}
			return nil
		})
		consumer := messaging.NewConsumer(receiver, counted, &messaging.ConsumerConfig{Retry: retry.Policy{Delay: 1},
			Telemetry: telemetry.Config{Logger: quiet()}})
		processes.Go(func() { require.NoError(t, consumer.Run(ctx)) })
	}
	processes.Wait()

	w.awaitEffects(len(msgs))
	got := w.effects()
	require.Len(t, got, len(msgs))
	next := map[string]int{}
	for _, id := range got {
		key := id[:1]
		require.Equal(t, fmt.Sprintf("%s/%02d", key, next[key]), id)
		next[key]++
	}
}
