package messaging_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/retry"
	"github.com/oncebox/oncebox/telemetry"
)

var errNotNow = errors.New("not now")

// script is a handler that records its calls and gives the answers that the test has set.
type script struct {
	mu     sync.Mutex
	calls  []string
	times  []time.Duration
	began  time.Time
	answer func(ctx context.Context, m *messaging.Message) error
}

func newScript(answer func(ctx context.Context, m *messaging.Message) error) *script {
	return &script{began: time.Now(), answer: answer}
}

func (s *script) Handle(ctx context.Context, m *messaging.Message) error {
	s.mu.Lock()
	s.calls = append(s.calls, m.ID)
	s.times = append(s.times, time.Since(s.began))
	s.mu.Unlock()
	return s.answer(ctx, m)
}

func (s *script) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.calls...)
}

// start runs a consumer within a bubble. stop cancels it and returns what Run returned.
func start(t *testing.T, r messaging.Receiver, h messaging.Handler, cfg *messaging.ConsumerConfig) (c *messaging.Consumer, stop func() error) {
	t.Helper()
	return startIn(t.Context(), r, h, cfg)
}

func startIn(ctx context.Context, r messaging.Receiver, h messaging.Handler, cfg *messaging.ConsumerConfig) (c *messaging.Consumer, stop func() error) {
	if cfg == nil {
		cfg = &messaging.ConsumerConfig{}
	}
	if cfg.Telemetry.Logger == nil {
		cfg.Telemetry.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(ctx)
	c = messaging.NewConsumer(r, h, cfg)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	synctest.Wait()
	return c, func() error {
		cancel()
		return <-ended
	}
}

func TestConsumerAcknowledgesAfterTheHandlerAndNotBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeReceiver(msg("a", 1))
		release := make(chan error)
		h := newScript(func(context.Context, *messaging.Message) error { return <-release })
		_, stop := start(t, r, h, nil)

		require.Empty(t, r.ackedIDs(), "the handler runs")
		release <- errNotNow
		synctest.Wait()
		require.Empty(t, r.ackedIDs(), "the handler failed")
		time.Sleep(time.Second) // of the bubble's clock
		release <- nil
		synctest.Wait()
		require.Equal(t, []string{"a1"}, r.ackedIDs())
		require.NoError(t, stop())
		require.True(t, r.isClosed())
	})
}

func TestConsumerKeepsTheOrderOfAKeyWhileItRetriesAndOthersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeReceiver(msg("a", 1), msg("a", 2), msg("b", 1), msg("a", 3), msg("b", 2))
		var mended atomic.Bool
		h := newScript(func(_ context.Context, m *messaging.Message) error {
			if m.ID == "a1" && !mended.Load() {
				return errNotNow
			}
			return nil
		})
		_, stop := start(t, r, h, nil)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"b1", "b2"}, r.ackedIDs())
		require.NotContains(t, h.seen(), "a2")

		mended.Store(true)
		time.Sleep(time.Minute)
		require.Equal(t, []string{"b1", "b2", "a1", "a2", "a3"}, r.ackedIDs())
		require.NoError(t, stop())
	})
}

func TestConsumerRunsOneMessageOfAKeyAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var msgs []*messaging.Message
		for n := range 20 {
			msgs = append(msgs, msg("a", n))
		}
		running := 0
		r := newFakeReceiver(msgs...)
		h := newScript(func(context.Context, *messaging.Message) error {
			running++ // the race detector watches as well
			defer func() { running-- }()
			time.Sleep(time.Millisecond)
			if running != 1 {
				return messaging.Permanent(errors.New("not alone"))
			}
			return nil
		})
		_, stop := start(t, r, h, nil)
		time.Sleep(time.Second)
		require.Len(t, r.ackedIDs(), 20)
		require.Len(t, h.seen(), 20)
		require.NoError(t, stop())
	})
}

func TestConsumerPauseHoldsNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeReceiver(msg("a", 1), msg("b", 1))
		h := newScript(func(_ context.Context, m *messaging.Message) error {
			if m.AggregateID == "a" {
				return messaging.RetryAfter(time.Hour, errNotNow)
			}
			return nil
		})
		_, stop := start(t, r, h, &messaging.ConsumerConfig{Concurrency: 1})
		require.Equal(t, []string{"b1"}, r.ackedIDs())
		require.NoError(t, stop(), "a pause does not delay the end")
	})
}

func TestConsumerHonoursRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeReceiver(msg("a", 1))
		h := newScript(func(_ context.Context, m *messaging.Message) error {
			if m.Attempt < 3 {
				return messaging.RetryAfter(time.Hour, errNotNow)
			}
			return nil
		})
		_, stop := start(t, r, h, nil)
		time.Sleep(3 * time.Hour)
		require.NoError(t, stop())
		require.Equal(t, []time.Duration{0, time.Hour, 2 * time.Hour}, h.times)
	})
}

func TestConsumerBacksOffExponentially(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeReceiver(msg("a", 1))
		h := newScript(func(context.Context, *messaging.Message) error { return errNotNow })
		_, stop := start(t, r, h, &messaging.ConsumerConfig{Retry: retry.Policy{Delay: time.Second, MaxDelay: 4 * time.Second}})
		time.Sleep(time.Minute)
		require.NoError(t, stop())
		for i, seconds := range []float64{1, 2, 4, 4, 4} {
			pause := (h.times[i+1] - h.times[i]).Seconds()
			require.LessOrEqual(t, pause, seconds)
			require.GreaterOrEqual(t, pause, seconds/2)
		}
	})
}

func TestConsumerBoundsConcurrencyAndQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeReceiver()
		for n := range 50 {
			r.incoming <- msg(fmt.Sprintf("k%d-", n), 1)
		}
		release := make(chan struct{})
		h := newScript(func(context.Context, *messaging.Message) error {
			<-release
			return nil
		})
		_, stop := start(t, r, h, &messaging.ConsumerConfig{Concurrency: 3, Queue: 10})
		require.Len(t, h.seen(), 3)
		require.Equal(t, 10, r.receivedCount())

		release <- struct{}{}
		synctest.Wait()
		require.Len(t, h.seen(), 4)
		require.Equal(t, 11, r.receivedCount())
		close(release)
		synctest.Wait()
		require.Len(t, r.ackedIDs(), 50)
		require.NoError(t, stop())
	})
}

func TestConsumerSurvivesAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeReceiver(msg("a", 1))
		h := newScript(func(_ context.Context, m *messaging.Message) error {
			if m.Attempt == 1 {
				panic("out of cheese")
			}
			return nil
		})
		var log logbook.Book
		_, stop := start(t, r, h, &messaging.ConsumerConfig{Telemetry: telemetry.Config{Logger: log.Logger()}})
		time.Sleep(time.Second)
		require.Equal(t, []string{"a1"}, r.ackedIDs())
		require.NoError(t, stop())
		require.Contains(t, log.String(), "out of cheese")
		require.Contains(t, log.String(), "TestConsumerSurvivesAPanic", "the stack")
	})
}

func TestConsumerNeverDropsWhatNothingMakesADeadLetterOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeReceiver(msg("a", 1))
		h := newScript(func(context.Context, *messaging.Message) error { return messaging.Permanent(errNotNow) })
		var log logbook.Book
		_, stop := start(t, r, h, &messaging.ConsumerConfig{Telemetry: telemetry.Config{Logger: log.Logger()}})
		time.Sleep(61 * time.Second)
		require.NoError(t, stop())
		require.Empty(t, r.ackedIDs())
		require.Equal(t, []time.Duration{0, 30 * time.Second, time.Minute}, h.times)
		require.Contains(t, log.String(), "inbox.Wrap")
	})
}

func TestConsumerTiesTheContextToTheMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newScript(func(ctx context.Context, m *messaging.Message) error {
			in, _ := messaging.FromContext(ctx)
			if in != m || event.TenantFrom(ctx) != "t1" || event.MetadataFrom(ctx)[event.CausationID] != m.ID {
				return errNotNow
			}
			return nil
		})
		r := newFakeReceiver(msg("a", 1))
		_, stop := start(t, r, h, nil)
		require.Equal(t, []string{"a1"}, r.ackedIDs())
		require.NoError(t, stop())
	})
}

func TestConsumerUnordered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeReceiver(msg("a", 1), msg("a", 2))
		release := make(chan struct{})
		h := newScript(func(context.Context, *messaging.Message) error {
			<-release
			return nil
		})
		_, stop := start(t, r, h, &messaging.ConsumerConfig{Unordered: true})
		require.Len(t, h.seen(), 2)
		close(release)
		require.NoError(t, stop())
		require.Len(t, r.ackedIDs(), 2)
	})
}

func TestConsumerProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeReceiver()
		release := make(chan error)
		h := newScript(func(context.Context, *messaging.Message) error { return <-release })
		c, stop := start(t, r, h, nil)
		require.False(t, c.Progress().Stalled(0), "nothing to do")

		time.Sleep(time.Hour)
		r.incoming <- msg("a", 1)
		r.incoming <- msg("a", 2)
		synctest.Wait()
		require.Equal(t, 2, c.Progress().Unsettled)
		require.False(t, c.Progress().Stalled(time.Minute), "the idle hour does not count")
		time.Sleep(2 * time.Minute)
		require.True(t, c.Progress().Stalled(time.Minute))

		release <- nil
		synctest.Wait()
		require.Equal(t, messaging.Progress{Unsettled: 1, Last: time.Now()}, c.Progress())
		release <- nil
		require.NoError(t, stop())
		require.Zero(t, c.Progress().Unsettled)
	})
}

// While it is paused no handler starts, not even for a message that was received before. Running handlers end. The wait is no standstill.
func TestPausedConsumerStartsNoHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeReceiver()
		release := make(chan error)
		h := newScript(func(context.Context, *messaging.Message) error { return <-release })
		c, stop := start(t, r, h, &messaging.ConsumerConfig{Concurrency: 1})
		for _, m := range []*messaging.Message{msg("a", 1), msg("a", 2), msg("b", 1)} {
			r.incoming <- m
			synctest.Wait()
		}
		c.Pause()
		c.Pause()
		release <- nil
		time.Sleep(time.Hour)
		require.Equal(t, []string{"a1"}, h.seen(), "a2 waits behind its key, and b1 waited for the slot")
		require.Equal(t, []string{"a1"}, r.ackedIDs())
		require.Equal(t, 2, c.Progress().Unsettled)

		c.Resume()
		require.False(t, c.Progress().Stalled(time.Minute), "the pause does not count")
		release <- nil
		release <- nil
		synctest.Wait()
		require.ElementsMatch(t, []string{"a1", "a2", "b1"}, r.ackedIDs())
		c.Pause()
		r.incoming <- msg("a", 3)
		synctest.Wait()
		require.NoError(t, stop(), "a pause does not hold up the end")
		require.NotContains(t, h.seen(), "a3")
	})
}

func TestConsumerConfigValidate(t *testing.T) {
	require.NoError(t, new(messaging.ConsumerConfig).Validate())
	bad := &messaging.ConsumerConfig{Concurrency: -1, Queue: -1, Retry: retry.Policy{Delay: -1, MaxDelay: -1}, DrainTimeout: -2}
	for _, field := range []string{"Concurrency", "Queue", "Retry.Delay", "Retry.MaxDelay", "DrainTimeout"} {
		require.ErrorContains(t, bad.Validate(), "ConsumerConfig."+field)
	}

	r := newFakeReceiver()
	require.ErrorContains(t, messaging.NewConsumer(r, nil, bad).Run(t.Context()), "ConsumerConfig.Queue")
	require.True(t, r.isClosed())
}
