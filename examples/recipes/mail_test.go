package recipes_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/examples/recipes"
	"github.com/oncebox/oncebox/oncetest"
	"github.com/oncebox/oncebox/serve"
)

// A mail is sent at most once, wherever the process dies, and its row says whether that is certain.
func TestMailIsSentAtMostOnce(t *testing.T) {
	sends, dies := 0, false
	var fails, away error
	kit, _ := oncetest.Serve(t, serve.Service{
		Source:  "mailer",
		Migrate: serve.Tables("CREATE TABLE IF NOT EXISTS mails (message_key text PRIMARY KEY, reservation text NOT NULL, outcome text NOT NULL)"),
		Setup: func(_ context.Context, app *oncebox.App) (http.Handler, error) {
			event.Register[recipes.ReservationPaid](app.Registry)
			recipes.ConsumeMails(app, func(context.Context) (func(string) error, error) {
				return func(string) error {
					if dies {
						dies = false
						panic("the process dies before it sends")
					}
					sends++
					return fails
				}, away
			})
			return nil, nil
		},
	})
	for id, c := range map[string]struct {
		points  []oncetest.Point
		fails   error
		sends   int
		outcome string
	}{
		"no crash":                   {nil, nil, 1, "sent"},
		"no answer":                  {nil, errors.New("the connection broke"), 1, "unclear"},
		"before the begin is stored": {[]oncetest.Point{oncetest.BeforeCommit}, nil, 1, "sent"},
		"after the call":             {[]oncetest.Point{oncetest.AfterCall}, nil, 1, "unclear"},
		"when it is settled":         {[]oncetest.Point{oncetest.BeforeAck}, nil, 1, "sent"},
	} {
		sends, fails = 0, c.fails
		kit.PublishFrom("tickets", "reservation", recipes.ReservationPaid{ID: id})
		for _, p := range c.points {
			kit.CrashAt(p)
		}
		kit.Drain()
		require.Equal(t, c.sends, sends, id)
		var outcome, key string
		require.NoError(t, kit.DB.NewRaw("SELECT outcome, message_key FROM mails WHERE reservation = ?", id).Scan(t.Context(), &outcome, &key))
		require.Equal(t, c.outcome, outcome, id)
		require.Len(t, key, 32)
	}
	outcomeOf := func(id string) (outcome string) {
		require.NoError(t, kit.DB.NewRaw("SELECT outcome FROM mails WHERE reservation = ?", id).Scan(t.Context(), &outcome))
		return outcome
	}
	sends, fails, dies = 0, nil, true
	kit.PublishFrom("tickets", "reservation", recipes.ReservationPaid{ID: "after the begin is stored"})
	require.NotEmpty(t, kit.DrainFailing())
	kit.Advance(time.Hour)
	kit.Drain()
	require.Zero(t, sends)
	require.Equal(t, "unclear", outcomeOf("after the begin is stored"))

	away = errors.New("connection refused")
	kit.PublishFrom("tickets", "reservation", recipes.ReservationPaid{ID: "server away"})
	require.NotEmpty(t, kit.DrainFailing())
	require.Zero(t, sends)
	away = nil
	kit.Advance(time.Hour)
	kit.Drain()
	require.Equal(t, 1, sends, "it is tried again")
}
