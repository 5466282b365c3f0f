package oncebox_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/consumers"
	"github.com/oncebox/oncebox/inbox/readmodel"
	"github.com/oncebox/oncebox/internal/apptest"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox/published"
	"github.com/oncebox/oncebox/uow"
)

// An event that nobody handles is sent, because perhaps nobody wants it; the log says so.
func TestEventThatNobodyHandlesWithoutABrokerIsLogged(t *testing.T) {
	db := pgtest.Migrated(t)
	cfg := apptest.Config()
	var log logbook.Book
	cfg.Inbox.Telemetry.Logger = slog.New(slog.NewTextHandler(&log, nil))
	app, err := oncebox.New(db.DB, nil, cfg)
	require.NoError(t, err)
	event.Register[OrderPlaced](app.Registry)
	warned := func() int { return log.Count("no consumer handles them") }
	sent := func() bool {
		var n int
		require.NoError(t, db.NewRaw("SELECT count(*) FROM outbox_unsent").Scan(t.Context(), &n))
		return n == 0
	}
	apptest.Run(t, app)
	place(t, app, "a", "b")
	await.True(t, func() bool { return warned() == 1 && sent() }, "the events are sent, with a warning")

	// A subscription is ended without its consumer.
	both := []inbox.Subscription{{Topic: "order", Consumer: "audit"}, {Topic: "invoice", Consumer: "audit"}}
	require.NoError(t, app.Inbox.Subscribe(t.Context(), both...))
	require.NoError(t, app.Inbox.Unsubscribe(t.Context(), both[0]))
	var left []string
	require.NoError(t, db.NewRaw("SELECT topic FROM inbox_topic WHERE subscribed").Scan(t.Context(), &left))
	require.Equal(t, []string{"invoice"}, left)
	require.Equal(t, 1, warned(), "once for the type")
}

// Without a broker an old process delivers, which does not know the consumer that a newer build has added, or a process that has no
// consumers at all. The events are handled all the same, in order, and once.
func TestConsumerOfANewerBuildWithoutABroker(t *testing.T) {
	for name, consume := range map[string]func(app *oncebox.App, h messaging.Handler) *readmodel.Model{
		"plain": func(app *oncebox.App, h messaging.Handler) *readmodel.Model {
			app.Consume("order", "audit", h)
			return nil
		},
		"read-model": func(app *oncebox.App, h messaging.Handler) *readmodel.Model {
			view := readmodel.New(app.Inbox, "audit", h)
			app.Consume("order", "audit", view)
			return view
		},
	} {
		t.Run(name, func(t *testing.T) {
			db := pgtest.Migrated(t)
			var mu sync.Mutex
			handled := map[string][]string{}
			start := func(consume func(app *oncebox.App, note func(consumer string) messaging.Handler), parts ...oncebox.Part) (*oncebox.App, func()) {
				app, err := oncebox.New(db.DB, nil, apptest.Config())
				require.NoError(t, err)
				event.Register[OrderPlaced](app.Registry)
				consume(app, func(consumer string) messaging.Handler {
					return messaging.HandlerFunc(func(_ context.Context, m *messaging.Message) error {
						mu.Lock()
						defer mu.Unlock()
						handled[consumer] = append(handled[consumer], m.AggregateID)
						return nil
					})
				})
				return app, apptest.Run(t, app, parts...)
			}
			var view *readmodel.Model
			newer, stop := start(func(app *oncebox.App, note func(string) messaging.Handler) { view = consume(app, note("audit")) }, oncebox.Consumers)
			subscribed := func() (n int) {
				require.NoError(t, db.NewRaw("SELECT count(*) FROM inbox_topic WHERE subscribed").Scan(t.Context(), &n))
				return n
			}
			await.True(t, func() bool { return subscribed() == 1 }, "the newer build has subscribed")
			old, _ := start(func(app *oncebox.App, note func(string) messaging.Handler) {
				app.Consume("order", "billing", note("billing"))
			})
			await.True(t, func() bool { return subscribed() == 2 }, "the older build has subscribed")
			place(t, old, "a", "b", "c")
			await.True(t, func() bool {
				mu.Lock()
				defer mu.Unlock()
				return len(handled["audit"]) >= 3 && len(handled["billing"]) >= 3
			}, "both consumers have three messages")
			mu.Lock()
			require.ElementsMatch(t, []string{"a", "b", "c"}, handled["audit"])
			require.ElementsMatch(t, []string{"a", "b", "c"}, handled["billing"])
			mu.Unlock()

			if view != nil { // whose rebuild forgets the generation before
				empty := func(context.Context, *uow.Unit) error { return nil }
				require.NoError(t, view.Rebuild(t.Context(), empty, newer.Outbox.Published().History(published.Filter{Topic: "order"}), nil))
				require.Equal(t, 2, subscribed())
			}
			ann := operator.By{Actor: "ann", Reason: "gone"}
			require.ErrorIs(t, old.Inbox.Consumers().Forget(t.Context(), "audit", ann), consumers.ErrRuns)
			stop()
			require.NoError(t, old.Inbox.Consumers().Forget(t.Context(), "audit", ann))
			require.Equal(t, 1, subscribed())
		})
	}
}
