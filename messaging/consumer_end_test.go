package messaging_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/messaging"
)

func TestConsumerDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeReceiver(msg("a", 1), msg("a", 2), msg("b", 1))
		h := newScript(func(ctx context.Context, _ *messaging.Message) error {
			time.Sleep(10 * time.Second)
			return ctx.Err()
		})
		_, stop := start(t, r, h, &messaging.ConsumerConfig{Concurrency: 1})
		first := h.seen()[0]
		require.NoError(t, stop())

		// Running handlers may end, and their messages are acknowledged while the receiver is still open. Messages that
		// wait for their key or for a slot are not started.
		require.Equal(t, []string{first}, h.seen())
		require.Equal(t, []string{first}, r.ackedIDs())
		require.True(t, r.isClosed())
	})
}

func TestConsumerStartsNothingWhileItDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeReceiver()
		for n := range 2 { // the second ones get their turn, and a free slot, when the consumer is stopping
			for key := range 10 {
				r.incoming <- msg(fmt.Sprintf("k%d-", key), n)
			}
		}
		h := newScript(func(context.Context, *messaging.Message) error {
			time.Sleep(time.Second)
			return nil
		})
		_, stop := start(t, r, h, &messaging.ConsumerConfig{Concurrency: 20})
		require.NoError(t, stop())
		require.Len(t, h.seen(), 10)
		require.Len(t, r.ackedIDs(), 10)
	})
}

func TestConsumerDoesNotRetryWhileItDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeReceiver(msg("a", 1), msg("a", 2))
		h := newScript(func(context.Context, *messaging.Message) error {
			time.Sleep(time.Second)
			return errNotNow
		})
		_, stop := start(t, r, h, nil)
		require.NoError(t, stop())
		require.Equal(t, []string{"a1"}, h.seen())
		require.Empty(t, r.ackedIDs())
	})
}

func TestConsumerCancelsHandlersThatTakeTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeReceiver(msg("a", 1))
		h := newScript(func(ctx context.Context, _ *messaging.Message) error {
			<-ctx.Done()
			return ctx.Err()
		})
		_, stop := start(t, r, h, nil)
		began := time.Now()
		require.NoError(t, stop())
		require.Equal(t, 30*time.Second, time.Since(began))
		require.Empty(t, r.ackedIDs())
		require.True(t, r.isClosed())
	})
}

func TestConsumerCancelsHandlersAtOnceIfToldSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newScript(func(ctx context.Context, _ *messaging.Message) error {
			<-ctx.Done()
			return ctx.Err()
		})
		_, stop := start(t, newFakeReceiver(msg("a", 1)), h, &messaging.ConsumerConfig{DrainTimeout: -1})
		began := time.Now()
		require.NoError(t, stop())
		require.Zero(t, time.Since(began))
	})
}

func TestConsumerEndsWithoutHandlersThatNeverReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeReceiver(msg("a", 1))
		release := make(chan struct{})
		h := newScript(func(context.Context, *messaging.Message) error {
			<-release
			return nil
		})
		_, stop := start(t, r, h, nil)
		require.ErrorContains(t, stop(), "handlers still run")
		require.True(t, r.isClosed())
		close(release)
		synctest.Wait()
		require.Empty(t, r.ackedIDs())
	})
}

func TestConsumerReportsADeadReceiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeReceiver(msg("a", 1), msg("a", 2))
		h := newScript(func(context.Context, *messaging.Message) error {
			time.Sleep(time.Second)
			return nil
		})
		dead := errors.New("topic is gone")
		r.dies <- dead
		err := messaging.NewConsumer(r, h, &messaging.ConsumerConfig{Name: "billing"}).Run(t.Context())
		require.ErrorIs(t, err, dead)
		require.ErrorContains(t, err, `consumer "billing"`)
		require.True(t, r.isClosed())
		require.Equal(t, h.seen(), r.ackedIDs(), "what ran was allowed to end")
	})
}

func TestConsumerEndsWhenAnAcknowledgementFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeReceiver(msg("a", 1), msg("a", 2))
		r.ackError = errors.New("no ack today")
		h := newScript(func(context.Context, *messaging.Message) error { return nil })
		err := messaging.NewConsumer(r, h, nil).Run(t.Context())
		require.ErrorIs(t, err, r.ackError)
		require.Equal(t, []string{"a1"}, h.seen(), "the next one of the key would be acknowledged before it")
		require.True(t, r.isClosed())
	})
}

// It is not acknowledged, not tried again, and in nobody's way: neither of its key nor of the queue.
func TestConsumerGoesOnAfterWhatIsLeftAtTheBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeReceiver()
		for n := range 20 {
			r.incoming <- msg("bad", n)
		}
		r.incoming <- msg("good", 1)
		h := newScript(func(_ context.Context, m *messaging.Message) error {
			if m.ID == "good1" {
				return nil
			}
			return messaging.LeaveAtBroker(errNotNow)
		})
		c, stop := start(t, r, h, &messaging.ConsumerConfig{Concurrency: 2, Queue: 2})
		synctest.Wait()
		require.Len(t, h.seen(), 21, "each once")
		require.Equal(t, []string{"good1"}, r.ackedIDs())
		require.Zero(t, c.Progress().Unsettled)
		require.NoError(t, stop())
	})
}
