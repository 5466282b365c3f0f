package oncebox_test

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/uow"
)

// The tests of this file are mistakes that people make, with the message that they get: it names the cause and the next step.
func TestMistakesInTheURLOfTheDatabase(t *testing.T) {
	for name, plant := range map[string]struct {
		change func(*url.URL)
		says   string
	}{
		"a role that does not exist": {
			func(u *url.URL) { u.User = url.UserPassword("oncebox_nobody", "x") },
			`refuses role or password: correct ONCEBOX_DATABASE_URL, or run CREATE ROLE "oncebox_nobody" LOGIN PASSWORD '...'`,
		},
		"a database that does not exist": {
			func(u *url.URL) { u.Path = "/oncebox_none" },
			`does not exist on this server: run CREATE DATABASE "oncebox_none", or correct ONCEBOX_DATABASE_URL`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			u, err := url.Parse(pgtest.URL(t))
			require.NoError(t, err)
			plant.change(u)
			_, err = config.OpenDB(t.Context(), config.Config{DatabaseURL: u.String()})
			require.ErrorContains(t, err, plant.says)
			require.NotContains(t, err.Error(), "start it", "it runs")
		})
	}
}

func TestMistakesAtTheTables(t *testing.T) {
	emit := func(db *pgtest.DB, pool *bun.DB) error {
		store := outbox.NewStore(pool, &outbox.Config{Schema: db.Schema, Source: "test"})
		return uow.New(pool, &uow.Config{Source: "test"}, store).Do(t.Context(), func(_ context.Context, u *uow.Unit) error {
			return u.Add("orders", []byte(`{}`))
		})
	}
	t.Run("no tables", func(t *testing.T) {
		db := pgtest.Open(t)
		require.ErrorContains(t, emit(db, db.DB), "oncebox's tables are missing: call migrations.Up (App.Migrate) first, or set the schema they are in")
	})
	t.Run("no rights", func(t *testing.T) {
		db := pgtest.Migrated(t)
		role := db.Schema + "_app"
		_, err := db.Exec("CREATE ROLE " + role)
		require.NoError(t, err)
		t.Cleanup(func() { _, _ = db.Exec("DROP OWNED BY " + role + "; DROP ROLE " + role) })
		pool := db.Another(t)
		pool.SetMaxOpenConns(1)
		_, err = pool.Exec("SET ROLE " + role)
		require.NoError(t, err)
		require.ErrorContains(t, emit(db, pool), "have the owner of the tables run GRANT USAGE ON SCHEMA "+db.Schema+" TO ...")
		_, err = db.Exec("GRANT USAGE ON SCHEMA " + db.Schema + " TO " + role)
		require.NoError(t, err)
		require.ErrorContains(t, emit(db, pool), "TO ..., with the role of the database's URL; "+
			"the documentation of package migrations lists what each role needs")
	})
}

// A consumer that is added later would receive nothing.
func TestConsumeAfterRun(t *testing.T) {
	db := pgtest.Migrated(t)
	app, err := oncebox.New(db.DB, memory.New(nil), quickConfig())
	require.NoError(t, err)
	handler := messaging.HandlerFunc(func(context.Context, *messaging.Message) error { return nil })
	app.Consume("orders", "early", handler)
	stop := run(t, app)
	await.True(t, func() bool { return app.Projector.Progress().Running && app.Inbox.Health(time.Minute) == nil }, "relay and consumers run")
	require.PanicsWithValue(t, `oncebox: inbox: Consume("orders", "late"): Run has begun, so nothing would be received: call it before Run`, func() {
		app.Consume("orders", "late", handler)
	})
	stop()
	app.Consume("orders", "late", handler) // for the next Run
}
