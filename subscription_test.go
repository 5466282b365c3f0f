package oncebox_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
)

// Without a broker an old process delivers, which does not know the consumer that a newer build has added, or a process that has no
// consumers at all. The events are handled all the same, in order, and once.
func TestConsumerOfANewerBuildWithoutABroker(t *testing.T) {
	for name, consume := range map[string]func(app *oncebox.App, h messaging.Handler){
		"plain": func(app *oncebox.App, h messaging.Handler) { app.Consume("order", "audit", h) },
		"projection": func(app *oncebox.App, h messaging.Handler) {
			app.Consume("order", "audit", app.Inbox.Projection("audit", h))
		},
	} {
		t.Run(name, func(t *testing.T) {
			db := pgtest.Migrated(t)
			var mu sync.Mutex
			handled := map[string][]string{}
			start := func(consume func(app *oncebox.App, note func(consumer string) messaging.Handler), parts ...oncebox.Part) *oncebox.App {
				app, err := oncebox.New(db.DB, nil, quickConfig())
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
				run(t, app, parts...)
				return app
			}
			newer := start(func(app *oncebox.App, note func(string) messaging.Handler) { consume(app, note("audit")) }, oncebox.Consumers)
			subscribed := func() (n int) {
				require.NoError(t, db.NewRaw("SELECT count(*) FROM inbox_subscription").Scan(t.Context(), &n))
				return n
			}
			eventually(t, func() bool { return subscribed() == 1 })
			old := start(func(app *oncebox.App, note func(string) messaging.Handler) {
				app.Consume("order", "billing", note("billing"))
			})
			eventually(t, func() bool { return subscribed() == 2 })
			place(t, old, "a", "b", "c")
			eventually(t, func() bool {
				mu.Lock()
				defer mu.Unlock()
				return len(handled["audit"]) >= 3 && len(handled["billing"]) >= 3
			})
			mu.Lock()
			require.ElementsMatch(t, []string{"a", "b", "c"}, handled["audit"])
			require.ElementsMatch(t, []string{"a", "b", "c"}, handled["billing"])
			mu.Unlock()

			require.NoError(t, newer.Inbox.Forget(t.Context(), "audit"))
			require.Equal(t, 1, subscribed())
		})
	}
}
