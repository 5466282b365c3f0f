package oncebox_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/apptest"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/migrations"
)

// early is an app that was started before its database.
type early struct {
	*oncebox.App

	log     logbook.Book
	handled atomic.Int32
}

func newEarly(t *testing.T, db *bun.DB, broker oncebox.Broker) *early {
	t.Helper()
	e := &early{}
	cfg := apptest.Config()
	cfg.Telemetry.Logger = e.log.Logger()
	var err error
	e.App, err = oncebox.New(db, broker, cfg)
	require.NoError(t, err)
	event.Register[OrderPlaced](e.Registry)
	e.Consume("order", "billing", messaging.HandlerFunc(func(context.Context, *messaging.Message) error {
		e.handled.Add(1)
		return nil
	}))
	return e
}

func (e *early) awaitWait(t *testing.T) {
	t.Helper()
	await.True(t, func() bool { return e.log.Count("the database is away and is waited for") > 0 }, "the app says that it waits")
}

// A process may start before its database, and while that recovers. It begins when the database has come.
func TestDatabaseThatComesLate(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, nil)
	for name, away := range map[string]func(testing.TB) func(){"it recovers": server.Recover, "nobody answers": server.Vanish} {
		t.Run(name, func(t *testing.T) {
			apps := map[string]*early{
				"with a broker":     newEarly(t, server.Migrated(t).Another(t), memory.New(nil)),
				"without a broker":  newEarly(t, server.Migrated(t).Another(t), nil),
				"without its table": newEarly(t, server.Open(t).Another(t), memory.New(nil)),
			}
			migrated := make(chan error, 1)
			comes := away(t)
			for name, app := range apps {
				if name == "without its table" {
					go func() { migrated <- app.Migrate(t.Context()) }()
				} else {
					apptest.Run(t, app.App)
				}
				app.awaitWait(t)
				require.ErrorContains(t, app.Ready(t.Context()), "oncebox: not ready: the database does not answer", name)
				require.ErrorContains(t, app.ReadyToWrite(t.Context()), "oncebox: not ready: the database does not answer", name)
			}
			comes()
			require.NoError(t, await.Receive(t, migrated, "the tables are made"))
			apptest.Run(t, apps["without its table"].App)
			for name, app := range apps {
				await.True(t, func() bool { return app.Ready(context.Background()) == nil }, "the app is ready %s", name)
				place(t, app.App, "a")
				await.True(t, func() bool { return app.handled.Load() > 0 }, "the event is handled %s", name)
				require.Equal(t, 1, app.log.Count("the database is away"), name)
				require.Equal(t, 1, app.log.Count("the database has come"), name)
			}
		})
	}
}

// A server that recovers may be read before it takes writes.
func TestTablesAreMadeWhenTheDatabaseTakesWrites(t *testing.T) {
	t.Parallel()
	db := pgtest.OpenApart(t)
	_, err := db.ExecContext(t.Context(), "CREATE SCHEMA late")
	require.NoError(t, err)
	db.ReadOnly(t)
	var log logbook.Book
	cfg := apptest.Config()
	cfg.Telemetry.Logger, cfg.Schema = log.Logger(), "late"
	app, err := oncebox.New(db.DB.DB, nil, cfg)
	require.NoError(t, err)
	migrated := make(chan error, 1)
	go func() { migrated <- app.Migrate(t.Context()) }()
	await.True(t, func() bool { return log.Count("the database is away and is waited for") > 0 }, "it waits")
	db.Writable(t)
	require.NoError(t, await.Receive(t, migrated, "the tables are made"))
}

// Told to stop, a process that waits ends: Run as always, and what did not do its work with the reason.
func TestStopWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	db := pgtest.OpenApart(t)
	db.Leave(t)
	t.Cleanup(func() { db.Return(t) })
	app := newEarly(t, db.Another(t), memory.New(nil))
	stop := apptest.Run(t, app.App)
	app.awaitWait(t)
	stop() // demands nil

	app = newEarly(t, db.Another(t), memory.New(nil))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- app.Migrate(ctx) }()
	app.awaitWait(t)
	cancel()
	err := await.Receive(t, done, "Migrate has ended")
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "not currently accepting connections")
}

func TestStartThatMayNotWait(t *testing.T) {
	t.Parallel()
	db := pgtest.OpenApart(t)
	db.Leave(t)
	t.Cleanup(func() { db.Return(t) })
	for name, broker := range map[string]oncebox.Broker{"a broker": memory.New(nil), "no broker": nil} {
		var log logbook.Book
		cfg := apptest.Config()
		cfg.Telemetry.Logger, cfg.DatabaseWait = log.Logger(), -1
		app, err := oncebox.New(db.Another(t), broker, cfg)
		require.NoError(t, err)
		require.ErrorContains(t, app.Run(t.Context()), "not currently accepting connections", name)
		require.ErrorContains(t, app.Migrate(t.Context()), "not currently accepting connections", name)
		require.ErrorContains(t, app.Projector.Run(t.Context()), "not currently accepting connections", name)
		require.Empty(t, log.String(), name)
	}
}

// Tables that are missing do not come by waiting.
func TestTablesAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	app := newEarly(t, pgtest.Open(t).DB, nil)
	_, missing := errors.AsType[*migrations.MissingError](app.Run(t.Context()))
	require.True(t, missing)
	require.ErrorContains(t, app.Projector.Run(t.Context()), "oncebox's tables are missing")
	require.Zero(t, app.log.Count("waited for"))
}

// showing is a broker that is shown who publishes.
type showing struct {
	oncebox.Broker

	source chan string
}

func (s showing) Introduce(source, _ string) { s.source <- source }

// The database may go away again before the broker has been told who publishes.
func TestDatabaseThatGoesAwayDuringTheStart(t *testing.T) {
	t.Parallel()
	db := pgtest.OpenApart(t)
	broker := showing{memory.New(nil), make(chan string, 10)}
	e := &early{}
	cfg := apptest.Config()
	cfg.Telemetry.Logger = e.log.Logger()
	var err error
	e.App, err = oncebox.New(db.Another(t), broker, cfg)
	require.NoError(t, err)
	db.Leave(t)
	done := make(chan error, 1)
	go func() { done <- oncebox.Declare(t.Context(), e.App) }()
	e.awaitWait(t)
	db.Return(t)
	require.NoError(t, await.Receive(t, done, "the subscriptions are declared"))
	require.Equal(t, "test", await.Receive(t, broker.source, "it is told who publishes"))
}
