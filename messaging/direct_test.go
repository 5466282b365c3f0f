package messaging_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

func envelopes(msgs ...*messaging.Message) []event.Envelope {
	var envs []event.Envelope
	for _, m := range msgs {
		envs = append(envs, m.Envelope)
	}
	return envs
}

func TestDirectHandsOverInOrder(t *testing.T) {
	h := newScript(func(ctx context.Context, m *messaging.Message) error {
		in, ok := messaging.FromContext(ctx)
		require.True(t, ok)
		require.Same(t, m, in)
		require.Equal(t, 1, m.Attempt)
		return nil
	})
	require.NoError(t, messaging.Direct(h).Publish(t.Context(), envelopes(msg("a", 1), msg("b", 1), msg("a", 2))))
	require.Equal(t, []string{"a1", "b1", "a2"}, h.seen())
}

func TestDirectHoldsBackWhatIsBehindAFailure(t *testing.T) {
	h := newScript(func(_ context.Context, m *messaging.Message) error {
		switch m.ID {
		case "a1":
			return errNotNow
		case "b1":
			return messaging.Permanent(errNotNow)
		case "c1":
			panic("no")
		default:
			return nil
		}
	})
	err := messaging.Direct(h).Publish(t.Context(), envelopes(
		msg("a", 1), msg("b", 1), msg("c", 1), msg("d", 1), msg("a", 2), msg("b", 2), msg("c", 2), msg("a", 3), msg("d", 2),
	))
	require.Equal(t, []string{"a1", "b1", "c1", "d1", "d2"}, h.seen())

	var failed *messaging.PublishError
	require.ErrorAs(t, err, &failed)
	require.Len(t, failed.Failed, 7)
	require.ErrorIs(t, failed.Failed[0], errNotNow)
	require.False(t, messaging.IsPermanent(failed.Failed[0]))
	require.True(t, messaging.IsPermanent(failed.Failed[1]))
	var panicked *messaging.PanicError
	require.ErrorAs(t, failed.Failed[2], &panicked)
	for _, i := range []int{4, 5, 6, 7} {
		require.ErrorIs(t, failed.Failed[i], messaging.ErrBehind)
	}
}

func TestDirectKeepsTheOrderOfBothKeys(t *testing.T) {
	with := func(m *messaging.Message, orderingKey, routingKey string) *messaging.Message {
		m.Delivery.OrderingKey, m.RoutingKey = orderingKey, routingKey
		return m
	}
	h := newScript(func(_ context.Context, m *messaging.Message) error {
		if m.ID == "a1" || m.ID == "x1" {
			return errNotNow
		}
		return nil
	})
	err := messaging.Direct(h).Publish(t.Context(), envelopes(
		with(msg("a", 1), "order", "r1"), with(msg("b", 1), "order", "r2"), with(msg("c", 1), "other", "r1"), with(msg("d", 1), "another", "r3"),
		with(msg("x", 1), "", ""), with(msg("y", 1), "", ""),
	))
	require.Equal(t, []string{"a1", "d1", "x1", "y1"}, h.seen())
	var failed *messaging.PublishError
	require.ErrorAs(t, err, &failed)
	require.Len(t, failed.Failed, 4)
}

func TestDirectUnorderedMessagesDoNotWaitForEachOther(t *testing.T) {
	h := newScript(func(context.Context, *messaging.Message) error { return errNotNow })
	unordered := event.Envelope{ID: "1", Topic: "thing"}
	require.Error(t, messaging.Direct(h).Publish(t.Context(), []event.Envelope{unordered, unordered}))
	require.Len(t, h.seen(), 2)
}

func TestDirectCancelledCostsNoAttempt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	h := newScript(func(ctx context.Context, _ *messaging.Message) error {
		cancel()
		return ctx.Err()
	})
	err := messaging.Direct(h).Publish(ctx, envelopes(msg("a", 1), msg("b", 1)))
	require.Equal(t, []string{"a1"}, h.seen())
	var failed *messaging.PublishError
	require.ErrorAs(t, err, &failed)
	require.ErrorIs(t, failed.Failed[0], messaging.ErrUnknown)
	require.ErrorIs(t, failed.Failed[1], messaging.ErrUnknown)
}

func TestDirectTooSlowIsARefusal(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 1)
	defer cancel()
	<-ctx.Done()
	h := newScript(func(context.Context, *messaging.Message) error { return nil })
	err := messaging.Direct(h).Publish(ctx, envelopes(msg("a", 1)))
	require.ErrorIs(t, err, messaging.ErrUnknown, "was not sent")
	require.ErrorIs(t, err, context.DeadlineExceeded)

	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	slow := newScript(func(context.Context, *messaging.Message) error { return context.DeadlineExceeded })
	err = messaging.Direct(slow).Publish(ctx, envelopes(msg("a", 1)))
	require.NotErrorIs(t, err, messaging.ErrUnknown)
}
