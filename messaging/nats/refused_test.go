package nats

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/messaging"
)

// A start that is refused leaves nothing behind: another service may have the names that it would have taken.
func TestRefusedDeclarationMakesNothing(t *testing.T) {
	t.Parallel()
	server := serve(t)
	shop := connect(t, config(server.URL()))
	taken := messaging.Subscription{Topic: "taken", Name: "billing", Source: "shop"}
	require.NoError(t, shop.Declare(t.Context(), nil, []messaging.Subscription{taken}))
	_, err := shop.session.JS.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: shop.Stream("harmful"), Subjects: shop.Subjects("harmful", 8), NoAck: true,
	})
	require.NoError(t, err)

	fresh := messaging.Subscription{Topic: "fresh", Name: "billing", Source: "mailer"}
	foreign := messaging.Subscription{Topic: "taken", Name: "billing", Source: "mailer"}
	shared := messaging.Subscription{Topic: "taken", Name: "billing", Source: "shop", Type: messaging.Shared}
	harmful := messaging.Subscription{Topic: "harmful", Name: "billing", Source: "mailer"}
	for says, refused := range map[string]messaging.Subscription{
		`"shop"`: foreign, "is of the type failover": shared, "no_ack is true": harmful,
	} {
		cfg := config(server.URL())
		cfg.Topics, cfg.Subscriptions = []string{"first"}, []messaging.Subscription{fresh, refused}
		_, err := Connect(t.Context(), cfg)
		require.ErrorContains(t, err, says)
		for _, topic := range []string{"first", "fresh"} {
			_, err = shop.session.Stream(t.Context(), shop.Stream(topic))
			require.ErrorIs(t, err, jetstream.ErrStreamNotFound, topic)
		}
	}
}
