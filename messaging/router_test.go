package messaging_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/telemetry"
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
}

// While a build is being deployed, its predecessor receives what only the new one knows.
func TestRouterDoesNotRefuseForGoodWhatALaterBuildMayKnow(t *testing.T) {
	r := messaging.NewRouter(newRegistry())
	r.Strict()
	messaging.Handle(r, func(context.Context, orderPlaced) error { return nil })
	newer := typed("order.placed", `{}`)
	newer.SchemaVersion = 9
	err := r.Handle(t.Context(), newer)
	require.ErrorIs(t, err, event.ErrNewerVersion)
	require.ErrorContains(t, err, "order.placed version 9")
	require.False(t, messaging.IsPermanent(err))

	registry := event.NewRegistry(event.WithSealer(sealer(func() ([]byte, error) { return []byte(`{}`), nil })))
	event.Register[orderPlaced](registry)
	opens := messaging.NewRouter(registry)
	messaging.Handle(opens, func(context.Context, orderPlaced) error { return nil })
	newer.Metadata = event.Metadata{event.SealedKey: "k"}
	err = opens.Handle(t.Context(), newer)
	require.ErrorIs(t, err, event.ErrNewerVersion, "sealed")
	require.False(t, messaging.IsPermanent(err))

	for _, kind := range []string{"order.cancelled", "never.heard.of"} {
		err := r.Handle(t.Context(), typed(kind, `{}`))
		require.ErrorIs(t, err, messaging.ErrNoHandler)
		require.ErrorContains(t, err, kind)
		require.False(t, messaging.IsPermanent(err))
	}
}

func TestRouterSkipsWhatItHasNoHandlerFor(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	r := messaging.NewRouter(newRegistry())
	r.Ignore("order.placed")
	for range 3 {
		for _, kind := range []string{"order.cancelled", "order.placed", "order.created", "never.heard.of"} {
			require.NoError(t, r.Handle(t.Context(), typed(kind, "no json")))
		}
	}
	require.Equal(t, 2, strings.Count(log.String(), "level=WARN"), "a line for each type")
	require.Contains(t, log.String(), "type=never.heard.of")

	log.Reset()
	var of bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		cfg := &messaging.ConsumerConfig{Name: "billing", Telemetry: telemetry.Config{Logger: slog.New(slog.NewTextHandler(&of, nil))}}
		_, stop := start(t, newFakeReceiver(typed("order.returned", "{}")), r, cfg)
		synctest.Wait()
		require.NoError(t, stop())
	})
	require.Contains(t, of.String(), "consumer=billing", "in the log of the consumer")
	require.Empty(t, log.String())
}

func TestRouterIgnoresWhatItIsTold(t *testing.T) {
	r := messaging.NewRouter(newRegistry())
	r.Strict()
	r.Ignore("order.cancelled", "never.heard.of")
	require.NoError(t, r.Handle(t.Context(), typed("order.cancelled", `{}`)))
	require.NoError(t, r.Handle(t.Context(), typed("never.heard.of", `{}`)))
	require.Error(t, r.Handle(t.Context(), typed("order.placed", `{}`)))
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

// sealer calls its function to open payloads that it has marked as sealed.
type sealer func() ([]byte, error)

func (sealer) Seal(_ context.Context, env *event.Envelope) ([]byte, string, error) {
	return env.Payload, "k1", nil
}

func (s sealer) Open(context.Context, *event.Envelope, string) ([]byte, error) { return s() }

func TestRouterOpensSealedEvents(t *testing.T) {
	errDown := errors.New("the vault is down")
	for _, c := range []struct {
		name      string
		payload   string
		err       error
		handled   bool
		erased    bool
		is        error
		permanent bool
	}{
		{name: "readable", payload: `{"order_id":"7"}`, handled: true},
		{name: "erased", err: event.ErrErased, erased: true},
		{name: "not now", err: errDown, is: errDown},
		{name: "never", err: &event.DecodeError{Type: "order.placed", Err: errDown}, is: errDown, permanent: true},
		{name: "marked by the sealer", err: messaging.Permanent(errDown), is: errDown, permanent: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			registry := event.NewRegistry(event.WithSealer(sealer(func() ([]byte, error) { return []byte(c.payload), c.err })))
			event.Register[orderPlaced](registry)
			router := messaging.NewRouter(registry)
			handled, erased := false, false
			messaging.Handle(router, func(_ context.Context, e orderPlaced) error {
				handled = true
				require.Equal(t, orderPlaced{OrderID: "7"}, e)
				return nil
			})
			m := typed("order.placed", "?")
			require.NoError(t, registry.Seal(t.Context(), &m.Envelope))
			if c.erased {
				require.NoError(t, router.Handle(t.Context(), m), "by default it is settled")
			}
			router.Erased(func(_ context.Context, got *messaging.Message) error {
				erased = got == m
				return nil
			})
			err := router.Handle(t.Context(), m)
			require.ErrorIs(t, err, c.is)
			require.Equal(t, c.permanent, messaging.IsPermanent(err))
			require.Equal(t, c.handled, handled)
			require.Equal(t, c.erased, erased)
		})
	}
}

// The text of an error is stored with a dead letter, in the clear.
func TestRouterDoesNotQuoteWhatWasSealed(t *testing.T) {
	registry := event.NewRegistry(event.WithSealer(sealer(func() ([]byte, error) { return []byte(`{"total":4711.5}`), nil })))
	event.Register[orderPlaced](registry)
	router := messaging.NewRouter(registry)
	messaging.Handle(router, func(context.Context, orderPlaced) error { return nil })
	require.ErrorContains(t, router.Handle(t.Context(), typed("order.placed", `{"total":4711.5}`)), "4711.5", "an open one may be quoted")

	m := typed("order.placed", "?")
	require.NoError(t, registry.Seal(t.Context(), &m.Envelope))
	err := router.Handle(t.Context(), m)
	var decode *event.DecodeError
	require.ErrorAs(t, err, &decode)
	require.True(t, messaging.IsPermanent(err))
	require.NotContains(t, err.Error(), "4711.5")
}

// An event that a handler cannot announce, because its own tenant was erased, says nothing about the message.
func TestRouterDoesNotSettleWhatAHandlerCouldNotAnnounce(t *testing.T) {
	router := messaging.NewRouter(newRegistry())
	messaging.Handle(router, func(context.Context, orderPlaced) error { return event.ErrErased })
	require.ErrorIs(t, router.Handle(t.Context(), typed("order.placed", `{}`)), event.ErrErased)
}
