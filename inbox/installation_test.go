package inbox_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
)

// shopOf has the three consumers of a service.
func (w *world) shopOf(source string) *inbox.Inbox {
	w.t.Helper()
	box := w.hasty(nil)
	for _, topic := range []string{"order", "parcel", "ticket"} {
		require.NoError(w.t, box.Consume(topic, "billing-"+topic, messaging.HandlerFunc(w.effect), inbox.OwnedBy(source)))
	}
	return box
}

// A service that is started with another database, which exists and has the tables, is refused at the broker; and it has left nothing there that
// would keep the right service away.
func TestServiceWithTheWrongDatabase(t *testing.T) {
	t.Parallel()
	right, wrong := newWorld(t), newWorld(t)
	broker := memory.New(nil)
	t.Cleanup(func() { require.NoError(t, broker.Close()) })
	stop := start(t, right.shopOf("shop"), broker)
	owners := func(w *world) int {
		return len(column[string](w.t, w.db.DB, "SELECT source FROM inbox_consumer WHERE source IS NOT NULL"))
	}
	await.True(t, func() bool { return owners(right) == 3 }, "the consumers are the service's")

	var refused *messaging.InstallationError
	require.ErrorAs(t, wrong.shopOf("shop").Run(t.Context(), broker), &refused)
	require.Equal(t, []string{"order", "billing-order", "shop"}, []string{refused.Topic, refused.Subscription, refused.Source})
	wrong.requireNothing()
	stop()
	require.ErrorAs(t, wrong.shopOf("shop").Run(t.Context(), broker), &refused, "also while the right one is down")

	wrong.exec(refused.Mend)
	again := start(t, wrong.shopOf("shop"), broker)
	await.True(t, func() bool { return owners(wrong) == 3 }, "what the error says mends it: the database has taken the place")
	again()
}

// A start that the broker refuses because the name is another service's leaves nothing behind, whichever of several consumers it is; the right service
// starts in the same database.
func TestRefusedStartLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	broker := memory.New(nil)
	t.Cleanup(func() { require.NoError(t, broker.Close()) })
	require.NoError(t, broker.Declare(t.Context(), nil, []messaging.Subscription{{Topic: "ticket", Name: "billing-ticket", Source: "shop"}}))
	var refused *messaging.SourceError
	require.ErrorAs(t, w.shopOf("other").Run(t.Context(), broker), &refused)
	require.Equal(t, "ticket", refused.Topic)
	w.requireNothing()
	for _, topic := range []string{"order", "parcel"} {
		s, err := broker.ReadSubscription(t.Context(), topic, "billing-"+topic)
		require.NoError(t, err)
		require.True(t, s.Missing, topic)
	}
	stop := start(t, w.shopOf("shop"), broker)
	await.True(t, func() bool {
		return len(column[string](t, w.db.DB, "SELECT topic FROM inbox_topic WHERE subscribed AND handled_at IS NOT NULL")) == 3
	}, "the right service runs, and no beat of it is on its way, which the server could execute after the end")
	stop()

	// In the database alone: the third of three belongs to another service.
	w.exec("DELETE FROM inbox_topic")
	w.exec("DELETE FROM inbox_consumer")
	const owned = "INSERT INTO inbox_consumer (consumer, source, beat_at, active_at) VALUES ('billing-ticket', 'shop', NULL, NULL)"
	w.exec(owned)
	for _, run := range []func() error{
		func() error { return w.shopOf("other").SubscribeAll(t.Context()) },
		func() error { return w.shopOf("other").Run(t.Context(), nil) },
		func() error { return w.shopOf("other").Run(t.Context(), memory.New(nil)) },
		func() error { return w.shopOf("other").RunParked(t.Context()) },
	} {
		require.ErrorAs(t, run(), &refused)
		require.Equal(t, []string{"shop"}, column[string](t, w.db.DB, "SELECT source FROM inbox_consumer"))
		w.exec("DELETE FROM inbox_consumer")
		w.requireNothing()
		w.exec(owned)
	}
}

// requireNothing finds none of the rows that a start makes.
func (w *world) requireNothing() {
	w.t.Helper()
	for _, table := range []string{"inbox_consumer", "inbox_process", "inbox_topic"} {
		require.Empty(w.t, column[string](w.t, w.db.DB, "SELECT consumer FROM "+table), table)
	}
}

// The id of a database is made once and stored in it, so that all processes, and copies of the database, have the same id.
func TestInstallationOfADatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var ids [2]string
	for n := range ids {
		var err error
		ids[n], err = w.hasty(nil).Installation(context.WithoutCancel(t.Context()))
		require.NoError(t, err)
	}
	require.Equal(t, ids[0], ids[1])
	require.Equal(t, ids[:1], column[string](t, w.db.DB, "SELECT installation::text FROM oncebox_settings"))
	other, err := newWorld(t).hasty(nil).Installation(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, ids[0], other)
}

// A database without its settings, such as a replica that is not filled yet, gets no id of its own: it will have that of its origin.
func TestNoInstallationWithoutSettings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec("DELETE FROM oncebox_settings")
	_, err := w.hasty(nil).Installation(t.Context())
	require.ErrorContains(t, err, "oncebox_settings has no row")
	require.Empty(t, column[string](t, w.db.DB, "SELECT installation::text FROM oncebox_settings"))
}
