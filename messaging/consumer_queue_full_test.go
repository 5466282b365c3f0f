package messaging_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/retry"
)

// One failing key with more messages than the queue has places, and another key behind all of them.
func fullReceiver() *fakeReceiver {
	var msgs []*messaging.Message
	for n := range 20 {
		msgs = append(msgs, msg("a", n))
	}
	return newFakeReceiver(append(msgs, msg("b", 1))...)
}

func TestFailingKeyDoesNotKeepOthersOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := fullReceiver()
		parked := 0
		h := newScript(func(_ context.Context, m *messaging.Message) error {
			switch {
			case m.ID == "b1":
				return nil
			case m.QueueFull():
				parked++
				return nil
			}
			return errNotNow
		})
		_, stop := start(t, r, h, &messaging.ConsumerConfig{Queue: 8, Retry: retry.Policy{Delay: time.Hour, MaxDelay: time.Hour}})
		require.Contains(t, r.ackedIDs(), "b1", "no time has passed")
		require.Positive(t, parked)
		require.Equal(t, "a0", h.seen()[0])
		require.NoError(t, stop())
	})
}

func TestFullQueueEndsFewPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newScript(func(context.Context, *messaging.Message) error { return errNotNow })
		_, stop := start(t, fullReceiver(), h, &messaging.ConsumerConfig{Queue: 8, Retry: retry.Policy{Delay: time.Hour, MaxDelay: time.Hour}})
		require.Len(t, h.seen(), 4, "one try, and three more in which nothing parked it")
		time.Sleep(2 * time.Hour)
		require.Greater(t, len(h.seen()), 4)
		require.NoError(t, stop())
	})
}

func TestMessageAloneFillsNoQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queueFull := false
		h := newScript(func(_ context.Context, m *messaging.Message) error {
			queueFull = queueFull || m.QueueFull()
			return errNotNow
		})
		_, stop := start(t, newFakeReceiver(msg("a", 1)), h, &messaging.ConsumerConfig{Queue: 1})
		time.Sleep(time.Minute)
		require.NoError(t, stop())
		require.False(t, queueFull)
	})
	require.False(t, msg("a", 1).QueueFull(), "it has no consumer")
}

// Messages that wait for another process do not have others parked.
func TestPostponedMessageFillsNoQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var queueFull atomic.Bool
		h := newScript(func(_ context.Context, m *messaging.Message) error {
			if m.AggregateID == "a" {
				return messaging.Postpone(time.Hour, errNotNow)
			}
			time.Sleep(time.Second) // the others are there
			queueFull.Store(m.QueueFull())
			return nil
		})
		r := newFakeReceiver(msg("a", 0), msg("a", 1), msg("a", 2), msg("a", 3), msg("b", 1))
		_, stop := start(t, r, h, &messaging.ConsumerConfig{Queue: 8, Retry: retry.Policy{Delay: time.Millisecond, MaxDelay: time.Millisecond}})
		time.Sleep(time.Minute)
		require.ElementsMatch(t, []string{"a0", "b1"}, h.seen(), "it is not tried before its time")
		require.False(t, queueFull.Load())
		require.NoError(t, stop())
	})
	require.NoError(t, messaging.Postpone(time.Second, nil))
}

func TestHowManyMessagesAConsumerHas(t *testing.T) {
	for want, cfg := range map[int]messaging.ConsumerConfig{64: {}, 7: {Queue: 7}, 1600: {BatchSize: 100}, 200: {BatchSize: 100, Concurrency: 1}} {
		require.Equal(t, want, cfg.WithDefaults().Queue)
	}
}
