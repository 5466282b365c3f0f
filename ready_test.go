package oncebox_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/internal/apptest"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
)

func TestReadyNamesWhatStandsInTheWay(t *testing.T) {
	db := pgtest.Open(t)
	app, err := oncebox.New(db.DB, memory.New(nil), apptest.Config())
	require.NoError(t, err)
	app.Consume("order", "one", messaging.HandlerFunc(func(context.Context, *messaging.Message) error { return nil }))

	require.ErrorContains(t, app.Ready(t.Context()), "App.Migrate")
	require.NoError(t, app.Migrate(t.Context()))
	require.ErrorContains(t, app.Ready(t.Context(), oncebox.Relay), "the relay makes no progress")
	require.ErrorContains(t, app.Ready(t.Context(), oncebox.Consumers), "consumer one is not subscribed to order")
	require.NoError(t, app.Ready(t.Context(), oncebox.Cleaner), "a process that only writes needs the tables only")

	stop := apptest.Run(t, app)
	await.True(t, func() bool { return app.Ready(context.Background()) == nil }, "the app is ready")
	stop()
	require.ErrorContains(t, app.Ready(t.Context()), "the relay makes no progress")
	require.ErrorContains(t, app.Ready(t.Context()), "is not subscribed")
}

// deaf is a broker that takes messages and no consumers.
type deaf struct{ *memory.Broker }

func (deaf) Subscribe(context.Context, messaging.Subscription) (messaging.Receiver, error) {
	return nil, errors.New("no")
}

// undeclared is a broker that cannot make subscriptions ahead either.
type undeclared struct{ deaf }

func (undeclared) Declare(context.Context, []string, []messaging.Subscription) error {
	return errors.New("no subscriptions today")
}

func TestReadyWantsEveryConsumerSubscribed(t *testing.T) {
	db := pgtest.Migrated(t)
	app, err := oncebox.New(db.DB, deaf{memory.New(nil)}, apptest.Config())
	require.NoError(t, err)
	app.Consume("order", "one", messaging.HandlerFunc(func(context.Context, *messaging.Message) error { return nil }))
	apptest.Run(t, app)
	await.True(t, func() bool { return app.Ready(context.Background(), oncebox.Relay) == nil }, "the relay is ready")
	require.ErrorContains(t, app.Ready(t.Context()), "consumer one is not subscribed")
}

// Publishing to a topic without its subscriptions would lose; writing to the outbox would not.
func TestRunWithoutSubscriptions(t *testing.T) {
	db := pgtest.Migrated(t)
	app, err := oncebox.New(db.DB, undeclared{deaf{memory.New(nil)}}, apptest.Config())
	require.NoError(t, err)
	app.Consume("order", "one", messaging.HandlerFunc(func(context.Context, *messaging.Message) error { return nil }))
	for _, parts := range [][]oncebox.Part{nil, {oncebox.Relay}, {oncebox.Consumers}} {
		require.ErrorContains(t, app.Run(t.Context(), parts...), "no subscriptions today")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- app.Run(ctx, oncebox.Cleaner) }()
	cancel()
	require.NoError(t, <-done)
}
