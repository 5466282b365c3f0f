package oncebox_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/apptest"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/uow"
)

// The prefix counts for each way to name a topic, so that what a service sends is what it consumes. An absolute name has none.
func TestTopicPrefixCountsForAllTopics(t *testing.T) {
	db := pgtest.Migrated(t)
	broker := memory.New(nil)
	cfg := apptest.Config()
	cfg.UoW.TopicPrefix = "blue."
	app, err := oncebox.New(db.DB, broker, cfg)
	require.NoError(t, err)
	event.Register[OrderPlaced](app.Registry)
	got := make(chan string, 10)
	note := messaging.HandlerFunc(func(_ context.Context, m *messaging.Message) error {
		got <- m.Topic + " " + m.Type
		return nil
	})
	app.Consume("order", "aggregates", note)
	app.Consume("added", "added", note)
	app.Consume("stored", "stored", note)
	app.ConsumeBatch("later", "scheduled", func(ctx context.Context, all []*messaging.Message) error { return note.Handle(ctx, all[0]) })
	app.Consume("/green.order", "foreign", note)
	require.PanicsWithValue(t, `oncebox: inbox: Consume("blue.order", "aggregates"): there is such a consumer already`, func() {
		app.Consume("/blue.order", "aggregates", note)
	})
	apptest.Run(t, app)

	var sent uow.Token
	require.NoError(t, app.UoW.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		u.Track(PlaceOrder("a", 1))
		if _, err := u.Schedule("later", []byte("{}"), event.WithDelay(0)); err != nil {
			return err
		}
		if err := u.Add("/green.order", []byte("{}")); err != nil {
			return err
		}
		if _, err := app.Outbox.AddAll(ctx, u.DB(), outbox.Draft{Topic: "stored", Payload: []byte("{}")}); err != nil {
			return err
		}
		return u.Add("added", []byte("{}"))
	}, uow.WithToken(&sent)))
	var all []string
	for range 5 {
		all = append(all, await.Receive(t, got, "five messages, the last ones were %v", all))
	}
	require.ElementsMatch(t, []string{
		"blue.order order.placed", "blue.later later", "green.order green.order", "blue.stored stored", "blue.added added",
	}, all)
	ended, end := context.WithCancel(t.Context())
	end()
	for _, topic := range []string{"added", "/green.order"} {
		require.ErrorIs(t, app.Inbox.Await(ended, "nobody", sent, topic), context.Canceled, "Await finds the event of topic %s", topic)
	}
}
