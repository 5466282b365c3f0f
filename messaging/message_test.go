package messaging_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/envelope"
	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/telemetry"
)

func TestNewContextTiesWhatIsEmittedToTheMessage(t *testing.T) {
	m := msg("a", 1)
	m.Metadata = event.Metadata{event.CorrelationID: "request-7", event.TraceParent: sender, "color": "red"}
	ctx := messaging.NewContext(context.Background(), m)

	in, ok := messaging.FromContext(ctx)
	require.True(t, ok)
	require.Same(t, m, in)
	require.Equal(t, "t1", event.TenantFrom(ctx))
	require.Equal(t, event.Metadata{
		event.CorrelationID: "request-7", event.CausationID: "a1", event.TraceParent: sender,
	}, event.MetadataFrom(ctx), "what the sender added is the sender's")
}

func TestNewContextStartsAConversation(t *testing.T) {
	ctx := messaging.NewContext(event.WithTenant(context.Background(), "outer"), messaging.NewMessage(event.Envelope{ID: "1"}, 1, nil))
	require.Equal(t, "1", event.MetadataFrom(ctx)[event.CorrelationID])
	require.Equal(t, "outer", event.TenantFrom(ctx))

	_, ok := messaging.FromContext(context.Background())
	require.False(t, ok)
}

// A handler that adds an event under the context could not store it otherwise.
func TestNewContextLeavesOutWhatNoEventCanHave(t *testing.T) {
	registry := event.NewRegistry()
	maker := envelope.Maker{Registry: registry, Source: "test"}
	for name, md := range map[string]event.Metadata{
		"bytes":    {event.CorrelationID: "\xff", event.TraceParent: "\xff", event.TraceState: "\xff"},
		"NUL":      {event.CorrelationID: "a\x00", event.TraceParent: sender + "\x00", event.TraceState: "a=\x00"},
		"size":     {event.CorrelationID: strings.Repeat("c", 64<<10), event.TraceParent: strings.Repeat("0", 64<<10)},
		"state":    {event.TraceParent: sender, event.TraceState: "vendor=" + strings.Repeat("v", 64<<10)},
		"later":    {event.TraceParent: "01" + sender[2:] + "-" + strings.Repeat("\xff", 64<<10)},
		"no trace": {event.TraceState: "vendor=v"},
	} {
		t.Run(name, func(t *testing.T) {
			m := msg("a", 1)
			m.Metadata = md
			ctx := messaging.NewContext(context.Background(), m)
			env, err := maker.Payload(ctx, "out", []byte("x"), nil)
			require.NoError(t, err)
			require.Equal(t, "a1", env.Metadata[event.CorrelationID], "as if there was none")
			require.Equal(t, "a1", env.Metadata[event.CausationID])
			require.Empty(t, env.Metadata[event.TraceState])
		})
	}
	m := msg("a", 1)
	m.Metadata = event.Metadata{event.TraceParent: sender, event.TraceState: "vendor=v"}
	require.Equal(t, "vendor=v", event.MetadataFrom(messaging.NewContext(context.Background(), m))[event.TraceState])
	m.ID = "\xff"
	require.Empty(t, event.MetadataFrom(messaging.NewContext(context.Background(), m))[event.CausationID])
}

func TestMetadataThatIsLeftOutIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeReceiver()
		for n := range 3 {
			m := msg("a", n)
			m.Metadata = event.Metadata{event.CorrelationID: "\xff"}
			r.incoming <- m
		}
		var log logbook.Book
		h := newScript(func(context.Context, *messaging.Message) error { return nil })
		_, stop := start(t, r, h, &messaging.ConsumerConfig{Telemetry: telemetry.Config{Logger: log.Logger()}})
		synctest.Wait()
		require.NoError(t, stop())
		require.Len(t, r.ackedIDs(), 3)
		require.Equal(t, 1, strings.Count(log.String(), "metadata that is not valid"))
		require.Contains(t, log.String(), "correlation_id")
	})
}

func TestMessageOrderingKey(t *testing.T) {
	for _, c := range []struct {
		name string
		env  event.Envelope
		want string
	}{
		{"aggregate", event.Envelope{TenantID: "t", AggregateType: "order", AggregateID: "1", RoutingKey: "r"}, "t|order|1"},
		{"explicit, as the producer has it", event.Envelope{TenantID: "t", AggregateID: "1", Delivery: event.Delivery{OrderingKey: "k"}}, "t|k"},
		{"routing key", event.Envelope{TenantID: "t", RoutingKey: "r|s"}, `t|r\|s`},
		{"none", event.Envelope{TenantID: "t"}, ""},
	} {
		m := messaging.NewMessage(c.env, 1, nil)
		require.Equal(t, c.want, m.OrderingKey(), c.name)
		require.Equal(t, c.env.Delivery, m.Delivery, c.name)
	}
}

func TestReceiptIsTheAdapters(t *testing.T) {
	require.Equal(t, 7, messaging.NewMessage(event.Envelope{}, 1, 7).Receipt())
}
