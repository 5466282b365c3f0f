package oncebox_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/internal/apptest"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
)

// A service that does not make its tables is started with the database of another service. It leaves nothing there and nothing at the broker. A
// process without consumers runs: "oncebox relay" may have another source than the service.
func TestRunOnTheTablesOfAnotherService(t *testing.T) {
	db, memories := pgtest.Migrated(t), memory.New(nil)
	_, err := db.ExecContext(t.Context(), "INSERT INTO inbox_consumer (consumer, source) VALUES ('mails', 'mailer')")
	require.NoError(t, err)
	for name, broker := range map[string]oncebox.Broker{"with a broker": memories, "without a broker": nil} {
		t.Run(name, func(t *testing.T) {
			app, err := oncebox.New(db.DB, broker, apptest.Config())
			require.NoError(t, err)
			app.Consume("order", "seats", messaging.HandlerFunc(func(context.Context, *messaging.Message) error { return nil }))
			var refused *oncebox.ForeignError
			require.ErrorAs(t, runUntilReady(t, app), &refused)
			require.Equal(t, oncebox.ForeignError{Source: "test", Owners: []string{"mailer"}}, *refused)
			var left int
			require.NoError(t, db.NewRaw(`SELECT (SELECT count(*) FROM inbox_consumer WHERE consumer = 'seats') + (SELECT count(*) FROM inbox_topic)`).
				Scan(t.Context(), &left))
			require.Zero(t, left)
			state, err := memories.ReadSubscription(t.Context(), "order", "seats")
			require.NoError(t, err)
			require.True(t, state.Missing)

			app, err = oncebox.New(db.DB, broker, apptest.Config())
			require.NoError(t, err)
			require.NoError(t, runUntilReady(t, app))
		})
	}
}

// runUntilReady runs the app until it is ready or has ended by itself, and returns its error.
func runUntilReady(t *testing.T, app *oncebox.App) error {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- app.Run(ctx) }()
	await.True(t, func() bool { return len(ended) == 1 || app.Ready(t.Context()) == nil }, "the app is ready, or has ended")
	stop()
	return <-ended
}
