package messaging_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
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
