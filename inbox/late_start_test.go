package inbox_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

// Without a broker subscriptions are rows, so consumers that start before the database wait for it.
func TestConsumersStartBeforeTheirDatabase(t *testing.T) {
	t.Parallel()
	apart := pgtest.OpenApart(t)
	var log logbook.Book
	open := func(cfg inbox.Config) *inbox.Inbox {
		cfg.Telemetry.Logger = log.Logger()
		box := inbox.New(uow.New(apart.Another(t), &uow.Config{Source: "test", Telemetry: telemetry.Config{Logger: quiet()}}), &cfg)
		require.NoError(t, box.Consume("order", "billing", messaging.HandlerFunc(func(context.Context, *messaging.Message) error { return nil })))
		return box
	}
	apart.Leave(t)
	require.ErrorContains(t, open(inbox.Config{DatabaseWait: -1}).Run(t.Context(), nil), "not currently accepting connections")
	require.Zero(t, log.Count("waited for"))
	require.ErrorContains(t, (&inbox.Config{DatabaseWait: -2}).Validate(), "Config.DatabaseWait is -2ns")

	box := open(inbox.Config{})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- box.Run(ctx, nil) }()
	await.True(t, func() bool { return log.Count("the database is away and is waited for") > 0 }, "it says that it waits")
	apart.Return(t)
	await.True(t, func() bool { return box.Health(0) == nil && len(subscribed(t, apart.DB)) > 0 }, "the consumer is subscribed")
	stop()
	require.NoError(t, await.Receive(t, done, "it has ended"))
}

func subscribed(t *testing.T, db *pgtest.DB) []string {
	t.Helper()
	return column[string](t, db.DB, "SELECT consumer FROM inbox_topic WHERE subscribed")
}
