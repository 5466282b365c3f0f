package inbox_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/telemetry"
)

// Two services in one database use one name, on topics of their own, so that no broker notices: the second one would handle the parked
// messages of the first.
func TestConsumerOfAnotherService(t *testing.T) {
	w := newWorld(t)
	consuming := func(source, topic string) *inbox.Inbox {
		box := newBox(w.units, &inbox.Config{Schema: w.db.Schema, Telemetry: telemetry.Config{Logger: quiet()}})
		require.NoError(t, box.Consume(topic, "it's billing", messaging.HandlerFunc(w.effect), inbox.OwnedBy(source)))
		return box
	}
	ended := func(run func(context.Context) error) error {
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // it has looked before it notices
		return run(ctx)
	}
	shop := consuming("shop", "order")
	require.NoError(t, shop.SubscribeAll(t.Context()))
	require.NoError(t, consuming("shop", "order").SubscribeAll(t.Context()), "a second process of the service")
	require.NoError(t, consuming("", "order").SubscribeAll(t.Context()), "one that does not say")

	other := consuming("warehouse's", "parcel")
	var refused *messaging.SourceError
	require.ErrorAs(t, other.SubscribeAll(t.Context()), &refused)
	require.Equal(t, []string{"shop", "warehouse's", "it's billing"}, []string{refused.Owner, refused.Source, refused.Subscription})
	require.ErrorAs(t, other.RunParked(t.Context()), &refused)

	_, err := w.db.ExecContext(t.Context(), refused.Mend)
	require.NoError(t, err)
	require.NoError(t, other.SubscribeAll(t.Context()), "what the error says mends it")
	require.ErrorAs(t, shop.SubscribeAll(t.Context()), &refused)

	require.NoError(t, other.Forget(t.Context(), "it's billing"))
	require.NoError(t, shop.SubscribeAll(t.Context()), "the name is free")
	require.NoError(t, ended(shop.RunParked))
}

// Without Config.Schema the tables are where the search_path says.
func TestTheOwnerIsMendedInTheSchemaOfTheConnection(t *testing.T) {
	w := newWorld(t)
	consuming := func(source string) *inbox.Inbox {
		box := newBox(w.units, &inbox.Config{Telemetry: telemetry.Config{Logger: quiet()}})
		require.NoError(t, box.Consume("order", "billing", messaging.HandlerFunc(w.effect), inbox.OwnedBy(source)))
		return box
	}
	require.NoError(t, consuming("shop").SubscribeAll(t.Context()))
	renamed := consuming("store")
	var refused *messaging.SourceError
	require.ErrorAs(t, renamed.SubscribeAll(t.Context()), &refused)

	_, err := w.db.ExecContext(t.Context(), refused.Mend)
	require.NoError(t, err)
	require.NoError(t, renamed.SubscribeAll(t.Context()))
}
