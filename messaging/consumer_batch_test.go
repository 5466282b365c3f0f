package messaging_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/messaging"
)

// batchScript is a script that gets batches as well.
type batchScript struct {
	*script

	mu      sync.Mutex
	batches [][]string
	batch   func(ctx context.Context, msgs []*messaging.Message) error
}

func newBatchScript(batch func(context.Context, []*messaging.Message) error, alone func(context.Context, *messaging.Message) error) *batchScript {
	return &batchScript{script: newScript(alone), batch: batch}
}

func (s *batchScript) HandleBatch(ctx context.Context, msgs []*messaging.Message) error {
	ids := make([]string, len(msgs))
	for i, m := range msgs {
		ids[i] = m.ID
	}
	s.mu.Lock()
	s.batches = append(s.batches, ids)
	s.mu.Unlock()
	return s.batch(ctx, msgs)
}

func (s *batchScript) seenBatches() [][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([][]string{}, s.batches...)
}

func allWell(context.Context, []*messaging.Message) error { return nil }

func never(context.Context, *messaging.Message) error { return errNotNow }

func fine(context.Context, *messaging.Message) error { return nil }

// held answers a batch only when the test says so, and with the answer that the test gives.
func held(release <-chan error) func(context.Context, []*messaging.Message) error {
	return func(context.Context, []*messaging.Message) error { return <-release }
}

func oneLane(size int) *messaging.ConsumerConfig {
	return &messaging.ConsumerConfig{Concurrency: 1, BatchSize: size}
}

func TestBatchTakesWhatIsThereAndWaitsForNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeReceiver()
		release := make(chan error)
		h := newBatchScript(held(release), never)
		c, stop := start(t, r, h, oneLane(3))
		r.incoming <- msg("a", 1)
		synctest.Wait()
		require.Equal(t, [][]string{{"a1"}}, h.seenBatches(), "alone, and at once")

		for _, m := range []*messaging.Message{msg("a", 2), msg("b", 1), msg("a", 3), msg("c", 1)} {
			r.incoming <- m
		}
		synctest.Wait()
		require.Empty(t, r.ackedIDs(), "the handler runs")
		require.Equal(t, 5, c.Progress().Unsettled)
		release <- nil
		synctest.Wait()
		require.Equal(t, []string{"a1"}, r.ackedIDs())
		release <- nil
		synctest.Wait()
		require.Equal(t, [][]string{{"a1"}, {"a2", "b1", "a3"}, {"c1"}}, h.seenBatches())
		require.Equal(t, []string{"a1", "a2", "b1", "a3"}, r.ackedIDs())
		require.Equal(t, messaging.Progress{Unsettled: 1, Last: time.Now()}, c.Progress())
		release <- nil
		require.NoError(t, stop())
		require.Zero(t, c.Progress().Unsettled)
		require.Empty(t, h.seen())
	})
}

func TestBatchNeedsAHandlerOfBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeReceiver(msg("a", 1), msg("a", 2))
		h := newScript(fine)
		_, stop := start(t, r, h, oneLane(3))
		require.NoError(t, stop())
		require.Equal(t, []string{"a1", "a2"}, h.seen())
	})
}

func TestBatchOfOneIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newBatchScript(allWell, fine)
		_, stop := start(t, newFakeReceiver(msg("a", 1)), h, nil)
		require.NoError(t, stop())
		require.Empty(t, h.seenBatches())
		require.Equal(t, []string{"a1"}, h.seen())
	})
}

// Failed messages are handled alone with their keys held, while the batcher goes on with the other keys.
func TestBatchThatFailsInPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeReceiver()
		release := make(chan error)
		h := newBatchScript(held(release), func(_ context.Context, m *messaging.Message) error {
			if m.ID == "a2" && m.Attempt < 4 {
				return messaging.RetryAfter(time.Minute, errNotNow)
			}
			return nil
		})
		_, stop := start(t, r, h, oneLane(10))
		r.incoming <- msg("c", 1)
		synctest.Wait()
		for _, m := range []*messaging.Message{msg("a", 1), msg("a", 2), msg("b", 1), msg("a", 3), msg("b", 2)} {
			r.incoming <- m
		}
		synctest.Wait()
		release <- nil
		synctest.Wait()
		// a3 is not named, and b2 is settled although it comes last.
		release <- fmt.Errorf("wrapped: %w", &messaging.BatchError{Failed: map[int]error{1: errNotNow}})
		synctest.Wait()
		require.Equal(t, []string{"c1", "a1", "b1", "b2"}, r.ackedIDs())
		require.Equal(t, []string{"a2"}, h.seen(), "at once: another one may have been the cause")

		for _, m := range []*messaging.Message{msg("a", 4), msg("b", 3)} {
			r.incoming <- m
		}
		synctest.Wait()
		release <- nil
		time.Sleep(30 * time.Second)
		require.Equal(t, []string{"c1", "a1", "b1", "b2", "b3"}, r.ackedIDs())
		require.Equal(t, []string{"b3"}, h.seenBatches()[2], "the key of a4 is held")
		time.Sleep(3 * time.Minute)
		require.Equal(t, []string{"c1", "a1", "b1", "b2", "b3", "a2", "a3", "a4"}, r.ackedIDs())
		require.Equal(t, []string{"a2", "a2", "a2", "a3", "a4"}, h.seen())

		r.incoming <- msg("a", 5)
		synctest.Wait()
		release <- nil
		require.NoError(t, stop())
		require.Equal(t, []string{"a5"}, h.seenBatches()[3], "the key is free again")
		require.Equal(t, "a5", r.ackedIDs()[8])
	})
}

func TestBatchThatFailsAsAWhole(t *testing.T) {
	for name, batch := range map[string]func(context.Context, []*messaging.Message) error{
		"error": func(context.Context, []*messaging.Message) error { return errNotNow },
		"panic": func(context.Context, []*messaging.Message) error { panic("out of cheese") },
		"changed": func(_ context.Context, msgs []*messaging.Message) error {
			for _, m := range msgs {
				m.ID = "changed"
			}
			return errNotNow
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFakeReceiver(msg("a", 1), msg("a", 2), msg("b", 1))
				h := newBatchScript(batch, fine)
				var log logbook.Book
				cfg := oneLane(10)
				cfg.Telemetry.Logger = log.Logger()
				_, stop := start(t, r, h, cfg)
				require.NoError(t, stop())
				require.ElementsMatch(t, []string{"a1", "a2", "b1"}, r.ackedIDs())
				require.ElementsMatch(t, []string{"a1", "a2", "b1"}, h.seen())
				require.Contains(t, log.String(), "one by one")
				require.Equal(t, name == "panic", log.Count("out of cheese") > 0)
			})
		})
	}
}

func TestBatchHonoursRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newBatchScript(func(context.Context, []*messaging.Message) error { return messaging.RetryAfter(time.Hour, errNotNow) }, fine)
		_, stop := start(t, newFakeReceiver(msg("a", 1)), h, oneLane(10))
		time.Sleep(2 * time.Hour)
		require.NoError(t, stop())
		require.Equal(t, []time.Duration{time.Hour}, h.times)
	})
}

func TestBatchWithoutOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeReceiver()
		release := make(chan error)
		h := newBatchScript(held(release), func(context.Context, *messaging.Message) error {
			return messaging.RetryAfter(time.Hour, errNotNow)
		})
		_, stop := start(t, r, h, &messaging.ConsumerConfig{Concurrency: 2, BatchSize: 10, Unordered: true})
		for n := range 4 {
			r.incoming <- msg("a", n)
			synctest.Wait()
		}
		require.Equal(t, [][]string{{"a0"}, {"a1"}}, h.seenBatches(), "side by side")
		release <- &messaging.BatchError{}
		synctest.Wait()
		require.Equal(t, [][]string{{"a2", "a3"}}, h.seenBatches()[2:], "the other slot is taken")
		release <- &messaging.BatchError{}
		release <- &messaging.BatchError{Failed: map[int]error{0: errNotNow}}
		synctest.Wait()
		require.ElementsMatch(t, []string{"a0", "a1", "a3"}, r.ackedIDs(), "nothing is behind a2")
		require.NoError(t, stop())
	})
}

func TestBatchBoundsConcurrencyAndQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeReceiver()
		for n := range 200 {
			r.incoming <- msg(fmt.Sprintf("k%d-", n), 1)
		}
		release := make(chan error)
		h := newBatchScript(held(release), func(context.Context, *messaging.Message) error { return <-release })
		_, stop := start(t, r, h, &messaging.ConsumerConfig{Concurrency: 3, BatchSize: 4, Queue: 50})
		require.Len(t, h.seenBatches(), 3)
		require.Equal(t, 50, r.receivedCount())

		// Messages that fell out of their batch count for the same bounds.
		for range 3 {
			release <- errNotNow
		}
		synctest.Wait()
		require.Equal(t, 50, r.receivedCount())
		require.Equal(t, 6, len(h.seenBatches())+len(h.seen()), "three run, three have ended")
		close(release)
		synctest.Wait()
		require.Len(t, r.ackedIDs(), 200)
		require.NoError(t, stop())
	})
}

func TestBatchDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeReceiver()
		h := newBatchScript(func(ctx context.Context, msgs []*messaging.Message) error {
			time.Sleep(10 * time.Second)
			if len(msgs) == 1 {
				return nil
			}
			return errors.Join(ctx.Err(), &messaging.BatchError{Failed: map[int]error{len(msgs) - 1: errNotNow}})
		}, fine)
		_, stop := start(t, r, h, oneLane(3))
		for _, key := range []string{"a", "b", "c", "d", "e"} {
			r.incoming <- msg(key, 1)
			synctest.Wait() // the first one starts alone
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"a1"}, r.ackedIDs())
		require.NoError(t, stop())

		// The running batch may end, and the messages that it settled are acknowledged. Failed ones are not tried
		// again, and waiting ones are not begun.
		require.Equal(t, [][]string{{"a1"}, {"b1", "c1", "d1"}}, h.seenBatches())
		require.Equal(t, []string{"a1", "b1", "c1"}, r.ackedIDs())
		require.Empty(t, h.seen())
		require.True(t, r.isClosed())
	})
}

func TestBatchEndsWhenAnAcknowledgementFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeReceiver(msg("a", 1), msg("a", 2))
		r.ackError = errors.New("no ack today")
		h := newBatchScript(allWell, fine)
		err := messaging.NewConsumer(r, h, &messaging.ConsumerConfig{Concurrency: 1, BatchSize: 2}).Run(t.Context())
		require.ErrorIs(t, err, r.ackError)
		require.Len(t, h.seenBatches(), 1)
		require.True(t, r.isClosed())
	})
}

func TestBatchConfig(t *testing.T) {
	bad := &messaging.ConsumerConfig{BatchSize: -1}
	require.ErrorContains(t, bad.Validate(), "ConsumerConfig.BatchSize")
	bad = &messaging.ConsumerConfig{BatchSize: 100, Queue: 99}
	require.ErrorContains(t, bad.Validate(), "no batch would ever be full")
	require.NoError(t, (&messaging.ConsumerConfig{BatchSize: 100, Queue: 100}).Validate())
	require.NoError(t, (&messaging.ConsumerConfig{BatchSize: 100}).Validate(), "the default fits")
}

func TestBatchErrorNamesTheFirst(t *testing.T) {
	err := &messaging.BatchError{Failed: map[int]error{7: errNotNow, 3: messaging.Permanent(errors.New("three"))}}
	require.EqualError(t, err, "messaging: 2 messages of the batch failed, the first is the one with index 3: three")
	require.ErrorIs(t, err, errNotNow)
	require.True(t, messaging.IsPermanent(err))
	require.EqualError(t, &messaging.BatchError{}, "messaging: no message of the batch failed")
}
