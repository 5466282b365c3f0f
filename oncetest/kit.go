package oncetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/telemetry"
)

// Setup has what a service is built with in a test.
type Setup struct {
	// DB is the pool of the service. Its search_path is the schema of the test, which has oncebox's tables. It refuses
	// statements that belong into a unit of work, see config.Config.RefusePool.
	DB *bun.DB
	// Broker carries messages within the process. A service without a broker ignores it, and passes nil to oncebox.New.
	Broker oncebox.Broker
	// Config has the schema and the source "test", logs warnings to the test, and waits an hour before another try. A service may change
	// it.
	Config config.Config
}

// Kit is a service under test. Make it with [New].
type Kit struct {
	// App is the service. After a crash it is a new one, see [Kit.CrashAt].
	App *oncebox.App
	// DB is another pool on the test's database, for the test's own statements. It refuses none, and a
	// crash does not affect it.
	DB *bun.DB
	// Schema is the name of the test's schema, safe in SQL without quotes.
	Schema string

	t        testing.TB
	build    func(Setup) (*oncebox.App, error)
	dsn      string
	broker   *broker
	plan     *plan
	starts   int
	process  *process        // the present process of the service
	reported map[string]bool // failures that a Drain has returned already
}

// New builds a service in a schema of its own. Give it the function that builds it in production, and call Consume there. The function is
// called again for each start after a crash, see [Kit.CrashAt]. If the test needs more of the service than its App, use [NewService].
func New(t testing.TB, build func(Setup) (*oncebox.App, error)) *Kit {
	t.Helper()
	db := pgtest.Migrated(t)
	k := &Kit{
		DB: db.DB, Schema: db.Schema, t: t, build: build, dsn: db.DSN, broker: newBroker(), plan: &plan{}, reported: map[string]bool{},
	}
	t.Cleanup(func() {
		_ = k.broker.Close()
		k.requireUsed()
	})
	if err := errors.Join(k.keepEvents(), k.start()); err != nil {
		t.Fatalf("oncetest: New: %v", err)
	}
	return k
}

// NewService is [New] for a service that has a type of its own, for example a struct around its App, or its HTTP handler. service returns what
// build has made at the last start.
func NewService[S any](t testing.TB, build func(Setup) (S, *oncebox.App, error)) (kit *Kit, service func() S) {
	t.Helper()
	var present S
	kit = New(t, func(setup Setup) (app *oncebox.App, err error) {
		present, app, err = build(setup)
		return app, err
	})
	return kit, func() S { return present }
}

// keepEvents keeps published events, for [RequireEvent], also if the service deletes them: if processes have different settings, the
// longest retention counts. It sets the shortest retention that keeps events, so that a service with another setting does not log a
// warning.
func (k *Kit) keepEvents() error {
	store := outbox.NewStore(k.DB, &outbox.Config{Schema: k.Schema, Retention: 24 * time.Hour})
	return store.Upkeep().SetRetention(k.t.Context(), operator.By{Actor: "oncetest", Reason: "RequireEvent looks at what was published"})
}

// requireUsed fails the test at its end if a requested crash or failure has not happened.
func (k *Kit) requireUsed() {
	if k.t.Failed() {
		return
	}
	if points := k.plan.left(); len(points) > 0 {
		k.t.Errorf("oncetest: CrashAt: the service never came to %q: call CrashAt before the request, or the Drain, that should come to it. "+
			"Without a broker there are BeforeCommit, AfterCommit and AfterCall only", points)
	}
	if n := k.broker.unused(); n > 0 {
		k.t.Errorf("oncetest: FailNextPublish: %d of its errors were not used: nothing was published after it. Call it before the Drain that "+
			"publishes. A service without a broker does not publish", n)
	}
}

// start builds the service: at the beginning, and again after a crash.
func (k *Kit) start() error {
	k.starts++
	p, err := newProcess(k.dsn, fmt.Sprintf("%s %d", k.Schema, k.starts), k.plan, k.broker)
	if err != nil {
		return err
	}
	k.process = p
	k.t.Cleanup(func() { _ = p.close() })
	app, err := k.build(Setup{DB: p.pool, Broker: p.client, Config: defaults(k.Schema, mute{k.t.Output(), p})})
	if err != nil {
		return fmt.Errorf("the service could not be built: %w", err)
	}
	if app == nil {
		return errors.New("the service has no App: return what oncebox.New gave")
	}
	k.App = app
	return nil
}

// endLeases ends the leases of a process that has died, as time would. There is no other process whose
// leases it could end.
const endLeases = `
UPDATE outbox_lane SET lease_until = clock_timestamp() WHERE owner IS NOT NULL;
DELETE FROM outbox_projector;
UPDATE inbox_key SET due_at = clock_timestamp() WHERE owner IS NOT NULL;
UPDATE oncebox_lease SET lease_until = clock_timestamp() WHERE task = 'inbox.message';
UPDATE inbox_read_model SET lease_until = clock_timestamp() WHERE owner IS NOT NULL;
UPDATE idempotency_keys SET locked_until = clock_timestamp() WHERE state = 'claimed'`

// restart starts the service again after a crash.
func (k *Kit) restart(ctx context.Context) error {
	dead := k.process
	k.t.Logf("oncetest: the service died at CrashAt(%q) and is started anew", dead.point)
	_ = dead.close() // the error only says that connections are closed already
	if err := dead.endSessions(ctx, k.DB); err != nil {
		return err
	}
	// PostgreSQL runs several statements that are sent as one text in one transaction.
	if _, err := k.DB.NewRaw(endLeases).Exec(ctx); err != nil {
		return fmt.Errorf("end the leases of the dead process: %w", err)
	}
	if err := k.start(); err != nil && !k.process.isDead() { // a planned crash may happen while the service is built
		return fmt.Errorf("start the service anew after its crash: %w (the function given to New is called for each start, as main is: "+
			"what it makes may be there already, so make tables with CREATE TABLE IF NOT EXISTS)", err)
	}
	return nil
}

// pause is the default pause before a further try. It is longer than any test, so that failed messages are tried again
// only when the test moves the time, however slow the machine is.
const pause = time.Hour

// defaults returns the configuration of a service in a test. Checks that may be off in production are on.
func defaults(schema string, log io.Writer) config.Config {
	c := config.Config{
		Schema:      schema,
		Telemetry:   telemetry.Config{Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))},
		LogInterval: -1, // every failure is a line, so that a test can look for a single one
	}
	c.UoW.Source = "test"
	c.Projector.Retry.Delay = pause
	// A machine that stands still loses no lane: a publication that is repeated would be one too many in a test.
	c.Projector.PublishTimeout, c.Projector.Lease = 5*time.Minute, time.Hour
	c.Inbox.Retry.Tries = 1
	c.Inbox.Retry.Delay = pause
	c.Inbox.Retry.MaxDelay = pause
	c.Inbox.PollInterval = 10 * time.Millisecond
	c.Idempotency.Cache = -1 // a cache would not follow Advance, which changes times in the database
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
