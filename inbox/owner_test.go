package inbox_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/readmodel"
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

	require.NoError(t, other.Consumers().Forget(t.Context(), "it's billing", ann))
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

// That a consumer belongs to a service does not mean that it has run: no process was seen, and none is missed.
func TestOwnedConsumerHasNotRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.shopOf("shop").SubscribeAll(t.Context()))
	owners, err := w.box.Owners(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]string{"billing-order": "shop", "billing-parcel": "shop", "billing-ticket": "shop"}, owners)
	ran := func() (names []string) {
		list, err := w.box.State().Consumers(t.Context())
		require.NoError(t, err)
		for _, c := range list {
			if !c.SeenAt.IsZero() {
				names = append(names, c.Consumer)
			}
		}
		return names
	}
	require.Empty(t, ran())
	w.exec("INSERT INTO inbox_key (consumer, key_lock, tenant_id, state, due_at) VALUES ('billing-order', 1, 't', 'WAITING', now())")
	process := "INSERT INTO inbox_process (consumer, topic, process, name, state, since, unsettled, seen_until) " +
		"VALUES ('billing-order', 'order', gen_random_uuid(), 'p', 'STORED', now(), 0, now() - interval '1 minute')"
	w.exec(process) // of a process that was killed before it noted a run
	absent, err := w.box.State().Absent(t.Context())
	require.NoError(t, err)
	require.Empty(t, absent)

	_, err = w.box.State().Beat(t.Context(), []string{"billing-order"}, nil, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"billing-order"}, ran())
	absent, err = w.box.State().Absent(t.Context())
	require.NoError(t, err)
	require.Len(t, absent, 1)
}

// The first generation of a read model has its name. When it ends, the read model still belongs to its service and is still subscribed.
func TestRebuiltReadModelKeepsItsOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.hasty(nil)
	model := readmodel.New(box, "view", messaging.HandlerFunc(w.effect))
	require.NoError(t, box.Consume("order", "view", model, inbox.OwnedBy("shop")))
	require.NoError(t, box.SubscribeAll(t.Context()))
	require.NoError(t, box.Subscribe(t.Context(), inbox.Subscription{Topic: "order", Consumer: "view", ReadModel: true}))
	_, err := box.State().Beat(t.Context(), []string{"view"}, []string{"view", "view"}, []string{"order", "parcel"})
	require.NoError(t, err)
	require.NoError(t, model.Rebuild(t.Context(), w.clear, kept(10, nil), nil))
	owners, err := box.Owners(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]string{"view": "shop"}, owners)
	require.Equal(t, []string{"order"}, column[string](t, w.db.DB, "SELECT topic FROM inbox_topic WHERE consumer = 'view'"))
	require.Empty(t, column[string](t, w.db.DB, "SELECT consumer FROM inbox_consumer WHERE beat_at IS NOT NULL"), "the first generation does not run any more")
}
