package messaging_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

type orderPlaced struct {
	OrderID string `json:"order_id"`
	Total   int64  `json:"total"`
}

func (orderPlaced) EventType() string { return "order.placed" }

type orderCancelled struct {
	OrderID string `json:"order_id"`
}

func (*orderCancelled) EventType() string { return "order.cancelled" }

func newRegistry() *event.Registry {
	r := event.NewRegistry()
	event.Register[orderPlaced](r, event.WithAliases("order.created"))
	event.Register[*orderCancelled](r)
	return r
}

func typed(kind, payload string) *messaging.Message {
	return messaging.NewMessage(event.Envelope{ID: "1", Type: kind, Topic: "order", Payload: []byte(payload)}, 1, nil)
}

func TestRouterCallsTheHandlerOfTheType(t *testing.T) {
	r := messaging.NewRouter(newRegistry())
	var got []any
	messaging.Handle(r, func(_ context.Context, e orderPlaced) error {
		got = append(got, e)
		return nil
	})
	messaging.Handle(r, func(_ context.Context, e *orderCancelled) error {
		got = append(got, *e)
		return errNotNow
	})
	require.NoError(t, r.Handle(t.Context(), typed("order.placed", `{"order_id":"7","total":9007199254740993}`)))
	require.NoError(t, r.Handle(t.Context(), typed("order.created", `{"order_id":"8"}`)))
	require.ErrorIs(t, r.Handle(t.Context(), typed("order.cancelled", `{"order_id":"7"}`)), errNotNow)
	require.Equal(t, []any{orderPlaced{"7", 9007199254740993}, orderPlaced{"8", 0}, orderCancelled{"7"}}, got)
}

func TestRouterRefusesForGood(t *testing.T) {
	r := messaging.NewRouter(newRegistry())
	messaging.Handle(r, func(context.Context, orderPlaced) error { return nil })

	err := r.Handle(t.Context(), typed("order.placed", `{"order_id":7}`))
	var decode *event.DecodeError
	require.ErrorAs(t, err, &decode)
	require.True(t, messaging.IsPermanent(err))

	for _, kind := range []string{"order.cancelled", "never.heard.of"} {
		err := r.Handle(t.Context(), typed(kind, `{}`))
		require.ErrorIs(t, err, messaging.ErrNoHandler)
		require.ErrorContains(t, err, kind)
		require.True(t, messaging.IsPermanent(err))
	}
}

func TestRouterIgnoresWhatItIsTold(t *testing.T) {
	r := messaging.NewRouter(newRegistry())
	r.Ignore("order.cancelled", "never.heard.of")
	require.NoError(t, r.Handle(t.Context(), typed("order.cancelled", `{}`)))
	require.NoError(t, r.Handle(t.Context(), typed("never.heard.of", `{}`)))
	require.Error(t, r.Handle(t.Context(), typed("order.placed", `{}`)))

	r.IgnoreUnknown()
	require.NoError(t, r.Handle(t.Context(), typed("order.placed", `{}`)))
}

func TestHandlePanicsOnMistakesInTheProgram(t *testing.T) {
	r := messaging.NewRouter(newRegistry())
	messaging.Handle(r, func(context.Context, orderPlaced) error { return nil })
	require.PanicsWithValue(t, `messaging: Handle[messaging_test.orderPlaced]: "order.placed" has a handler already`, func() {
		messaging.Handle(r, func(context.Context, orderPlaced) error { return nil })
	})
	require.Panics(t, func() {
		messaging.Handle(messaging.NewRouter(event.NewRegistry()), func(context.Context, orderPlaced) error { return nil })
	})
}

func TestHandleOfAnotherGoType(t *testing.T) {
	r := messaging.NewRouter(newRegistry())
	messaging.Handle(r, func(context.Context, *orderPlaced) error { return errors.New("called") })
	err := r.Handle(t.Context(), typed("order.placed", `{}`))
	require.True(t, messaging.IsPermanent(err))
	require.ErrorContains(t, err, "registered as messaging_test.orderPlaced")
}
