package oncetest

import (
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging/memory"
)

// Setup is what a service is built on in a test.
type Setup struct {
	// DB is a pool whose search_path is the schema of the test. It has the tables of oncebox. It refuses statements that belong into a
	// unit of work, see config.Config.RefusePool.
	DB *bun.DB
	// Broker carries messages within the process.
	Broker oncebox.Broker
	// Config has the schema and the source "test", logs warnings to the test, and has pauses of an hour before what failed is tried
	// again. A service may change it.
	Config config.Config
}

// Kit is a service in a test. Make it with [New].
type Kit struct {
	// App is the service.
	App *oncebox.App
	// DB is the database of the test.
	DB *bun.DB
	// Schema is the schema of the test, safe in SQL without quotes.
	Schema string

	t        testing.TB
	broker   *broker
	reported map[string]bool // the failures that a Drain has told
}

// New builds a service in a schema of its own. Give it the function that builds it in production, and call Consume there.
func New(t testing.TB, build func(Setup) (*oncebox.App, error)) *Kit {
	t.Helper()
	db := pgtest.Migrated(t)
	pool, err := config.OpenDB(t.Context(), config.Config{DatabaseURL: db.DSN, RefusePool: true})
	if err != nil {
		t.Fatalf("oncetest: New: %v", err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	k := &Kit{DB: pool, Schema: db.Schema, t: t, broker: newBroker(), reported: map[string]bool{}}
	t.Cleanup(func() { _ = k.broker.Close() })
	app, err := build(Setup{DB: pool, Broker: k.broker, Config: defaults(t, db.Schema)})
	if err != nil {
		t.Fatalf("oncetest: New: the service could not be built: %v", err)
	}
	if app == nil {
		t.Fatalf("oncetest: New: the service has no App: return what oncebox.New gave")
	}
	k.App = app
	return k
}

// pause is longer than any test, so that what failed is tried again when the test says so, however slow the machine is.
const pause = time.Hour

// defaults is the configuration of a service in a test. What tests have on and production may have off is turned on here.
func defaults(t testing.TB, schema string) config.Config {
	t.Helper()
	c := config.Config{
		Schema: schema,
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	c.UoW.Source = "test"
	c.Projector.RetryDelay = pause
	c.Inbox.Retry.Tries = 1
	c.Inbox.Retry.Delay = pause
	c.Inbox.Retry.MaxDelay = pause
	c.Inbox.PollInterval = 10 * time.Millisecond
	return c
}

// Main runs the tests of a package, stops the server if one was started, and exits.
func Main(m *testing.M) {
	code := m.Run()
	if err := pgtest.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func newBroker() *broker {
	return &broker{Broker: memory.New(nil), moved: make(chan struct{}, 1)}
}
