package oncebox_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/readmodel"
	"github.com/oncebox/oncebox/internal/apptest"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/migrations"
	"github.com/oncebox/oncebox/operator"
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

func TestARoleThatMayNotConnect(t *testing.T) {
	db := pgtest.OpenApart(t)
	role := db.Database + "_app"
	for _, statement := range []string{
		"CREATE ROLE " + role + " LOGIN PASSWORD 'x'", "REVOKE CONNECT ON DATABASE " + db.Database + " FROM PUBLIC",
	} {
		_, err := db.Exec(statement)
		require.NoError(t, err)
	}
	t.Cleanup(func() { _, _ = db.Exec("DROP ROLE " + role) })
	u, err := url.Parse(db.URL)
	require.NoError(t, err)
	u.User = url.UserPassword(role, "x")
	_, err = config.OpenDB(t.Context(), config.Config{DatabaseURL: u.String()})
	require.ErrorContains(t, err, fmt.Sprintf(`is closed to the role: run GRANT CONNECT ON DATABASE %q TO %q`, db.Database, role))
}

// plain is an event. The tests forget to do something with it.
type plain struct{}

func (plain) EventType() string { return "order.plain" }

// namesake is another Go type with the name of plain.
type namesake struct{ plain }

func TestMistakesAtAnEventType(t *testing.T) {
	db := pgtest.Migrated(t, pgtest.Outbox)
	emit := func(register func(*event.Registry)) error {
		registry := event.NewRegistry()
		register(registry)
		store := outbox.NewStore(db.DB, &outbox.Config{Schema: db.Schema, Source: "test"})
		return uow.New(db.DB, &uow.Config{Source: "test", Registry: registry}, store).Do(t.Context(), func(_ context.Context, u *uow.Unit) error {
			return u.Add("orders", plain{})
		})
	}
	t.Run("that was not registered", func(t *testing.T) {
		err := emit(func(*event.Registry) {})
		require.ErrorContains(t, err, `"order.plain" (oncebox_test.plain): call event.Register[oncebox_test.plain] at start`)
	})
	t.Run("that two Go types have", func(t *testing.T) {
		err := emit(func(r *event.Registry) { event.Register[namesake](r) })
		require.ErrorContains(t, err, `"order.plain" is registered for oncebox_test.namesake, not for oncebox_test.plain: `+
			"give one of the two another EventType, or register the type that is emitted")
	})
	t.Run("whose handler takes another Go type", func(t *testing.T) {
		registry := event.NewRegistry()
		event.Register[plain](registry)
		router := messaging.NewRouter(registry)
		messaging.Handle(router, func(context.Context, namesake) error { return nil })
		err := router.Handle(t.Context(), messaging.NewMessage(event.Envelope{ID: "1", Type: "order.plain", Payload: []byte(`{}`)}, 1, nil))
		require.True(t, messaging.IsPermanent(err))
		require.ErrorContains(t, err, `event "order.plain" is registered as oncebox_test.plain, its handler takes oncebox_test.namesake: `+
			"let the handler take oncebox_test.plain, or register the other type")
	})
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
			"the command oncebox grants prints all that a role needs")
	})
}

// A consumer that is added later would receive nothing.
func TestConsumeAfterRun(t *testing.T) {
	db := pgtest.Migrated(t)
	app, err := oncebox.New(db.DB, memory.New(nil), apptest.Config())
	require.NoError(t, err)
	handler := messaging.HandlerFunc(func(context.Context, *messaging.Message) error { return nil })
	app.Consume("orders", "early", handler)
	stop := apptest.Run(t, app)
	await.True(t, func() bool { return app.Projector.Progress().Running && app.Inbox.Health(time.Minute) == nil }, "relay and consumers run")
	require.PanicsWithValue(t, `oncebox: inbox: Consume("orders", "late"): nothing would be received, because Run has begun: call it before Run`, func() {
		app.Consume("orders", "late", handler)
	})
	stop()
	app.Consume("orders", "late", handler) // for the next Run
}

// With the grants of its duty a role does all that a service does.
func TestGrantedService(t *testing.T) {
	db := pgtest.Migrated(t)
	role := db.Schema + "_app"
	_, err := db.Exec("CREATE ROLE " + role)
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = db.Exec("DROP OWNED BY " + role + "; DROP ROLE " + role) })
	statements, err := migrations.Grants(t.Context(), db.DB, &migrations.Config{Schema: db.Schema}, migrations.Service, role)
	require.NoError(t, err)
	for _, statement := range statements {
		_, err := db.Exec(statement)
		require.NoError(t, err)
	}
	conn, err := pgx.ParseConfig(db.DSN)
	require.NoError(t, err)
	conn.RuntimeParams["role"] = role
	pool := stdlib.OpenDB(*conn)
	t.Cleanup(func() { _ = pool.Close() })
	var book logbook.Book
	cfg := apptest.Config()
	cfg.Telemetry.Logger = book.Logger()
	app, err := oncebox.New(bun.NewDB(pool, pgdialect.New()), nil, cfg)
	require.NoError(t, err)
	event.Register[OrderPlaced](app.Registry)
	var handled atomic.Int64
	fails := messaging.HandlerFunc(func(_ context.Context, m *messaging.Message) error {
		if m.AggregateID == "poison" {
			return messaging.Permanent(errors.New("no"))
		}
		handled.Add(1)
		return nil
	})
	app.Consume("order", "plain", fails)
	app.Consume("order", "leased", fails, inbox.Leased())
	app.ConsumeBatch("order", "batch", func(ctx context.Context, msgs []*messaging.Message) error {
		for _, m := range msgs {
			if err := fails.Handle(ctx, m); err != nil {
				return err
			}
		}
		return nil
	})
	app.Consume("order", "view", readmodel.New(app.Inbox, "view", fails))
	apptest.Run(t, app)
	place(t, app, "a", "poison", "b")
	await.True(t, func() bool {
		dead, err := app.Inbox.Dead().Count(t.Context(), operator.DeadFilter{})
		return err == nil && dead == 4 && handled.Load() >= 8
	}, "each consumer handles two and gives up one")
	_, err = app.Inbox.Dead().DiscardAll(t.Context(), operator.DeadFilter{}, operator.By{Actor: "ann", Reason: "test"}, nil)
	require.NoError(t, err)
	require.NoError(t, app.Inbox.Clean(t.Context()))
	require.NoError(t, app.Outbox.Clean(t.Context()))
	_, err = app.Outbox.Upkeep().Reconcile(t.Context())
	require.NoError(t, err)
	_, err = app.Idempotency.Purge(t.Context(), app.UoW.DB(t.Context()))
	require.NoError(t, err)
	scope := idempotency.Anonymous("default")
	scope.Key = "k"
	key, err := app.Idempotency.Key(scope)
	require.NoError(t, err)
	require.NoError(t, app.UoW.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		_, err := app.Idempotency.Begin(ctx, u.DB(), key, idempotency.NewFingerprint("f"))
		return err
	}))
	require.NotContains(t, book.String(), "42501")
	require.NotContains(t, book.String(), "permission denied")
}

// Each right that the role lacks is reported once, and not by each part with each try.
func TestMissingRightsAreToldOfOnce(t *testing.T) {
	db := pgtest.Migrated(t)
	role := db.Schema + "_app"
	for _, statement := range []string{
		"CREATE ROLE " + role, "GRANT USAGE ON SCHEMA " + db.Schema + " TO " + role, "GRANT SELECT ON ALL TABLES IN SCHEMA " + db.Schema + " TO " + role,
		"GRANT USAGE ON ALL SEQUENCES IN SCHEMA " + db.Schema + " TO " + role,
	} {
		_, err := db.Exec(statement)
		require.NoError(t, err)
	}
	t.Cleanup(func() { _, _ = db.Exec("DROP OWNED BY " + role + "; DROP ROLE " + role) })
	conn, err := pgx.ParseConfig(db.DSN)
	require.NoError(t, err)
	conn.RuntimeParams["role"] = role
	var refusals atomic.Int64
	conn.OnPgError = func(_ *pgconn.PgConn, err *pgconn.PgError) bool {
		if err.Code == "42501" {
			refusals.Add(1)
		}
		return err.Severity != "FATAL"
	}
	pool := stdlib.OpenDB(*conn)
	t.Cleanup(func() { _ = pool.Close() })
	var book logbook.Book
	cfg := apptest.Config()
	cfg.Telemetry.Logger = book.Logger()
	app, err := oncebox.New(bun.NewDB(pool, pgdialect.New()), memory.New(nil), cfg)
	require.NoError(t, err)
	app.Consume("orders", "billing", messaging.HandlerFunc(func(context.Context, *messaging.Message) error { return nil }))
	stop := apptest.Run(t, app)
	await.True(t, func() bool { return refusals.Load() >= 20 }, "the parts try again and again")
	stop()
	denied, told := regexp.MustCompile(`permission denied for \w+ \w+`), map[string]bool{}
	for line := range strings.Lines(book.String()) {
		if right := denied.FindString(line); right != "" {
			require.Contains(t, line, "have the owner of the tables run GRANT ", "the next step")
			require.False(t, told[right], "once: %s", right)
			told[right] = true
		}
	}
	require.NotEmpty(t, told)
}
