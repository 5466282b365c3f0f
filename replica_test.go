package oncebox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/readmodel"
	"github.com/oncebox/oncebox/internal/apptest"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/nightly"
	"github.com/oncebox/oncebox/internal/outboxtest"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/migrations"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/step"
	"github.com/oncebox/oncebox/uow"
)

// publications are the two ways to publish all tables, by the words behind FOR ALL TABLES.
var publications = map[string]string{"by_root": "WITH (publish_via_partition_root = true)", "by_leaf": ""}

// replicas are a database and two that subscribe to all of its tables, as for an upgrade of PostgreSQL without a pause.
type replicas struct {
	t    *testing.T
	blue *pgtest.DB
	// green are the subscribers, by their publication.
	green map[string]*bun.DB
}

func newReplicas(t *testing.T) *replicas {
	t.Helper()
	server := pgtest.Start(t, map[string]string{
		"wal_level": "logical", "max_logical_replication_workers": "16", "max_worker_processes": "24", "max_replication_slots": "64",
		"max_wal_senders": "64", "wal_retrieve_retry_interval": "100ms",
	})
	r := &replicas{t: t, blue: server.Migrated(t), green: map[string]*bun.DB{}}
	for name, options := range publications {
		r.exec(r.blue.DB, "CREATE DATABASE "+name)
		r.exec(r.blue.DB, "CREATE PUBLICATION "+name+" FOR ALL TABLES "+options)
		r.exec(r.blue.DB, "SELECT pg_create_logical_replication_slot(?, 'pgoutput')", name)
		r.green[name] = r.subscriber(name, server.URL)
	}
	await.True(t, func() bool { return r.syncing() == 0 }, "all tables were copied")
	return r
}

func (r *replicas) subscriber(name, source string) *bun.DB {
	r.t.Helper()
	at, err := url.Parse(r.blue.DSN)
	require.NoError(r.t, err)
	at.Path = "/" + name
	pool, err := sql.Open("pgx", at.String())
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, pool.Close()) })
	db := bun.NewDB(pool, pgdialect.New())
	require.NoError(r.t, migrations.Up(r.t.Context(), db, &migrations.Config{Schema: r.blue.Schema, Logger: apptest.Config().Telemetry.Logger}))
	r.exec(db, "TRUNCATE oncebox_migrations, oncebox_settings, outbox_lane") // as docs/change-data-capture.md says
	r.exec(db, "SELECT outbox_make_partition(current_date + n), inbox_make_partition(current_date + n) FROM generate_series(-30, 7) n")
	r.exec(db, "CREATE SUBSCRIPTION "+name+" CONNECTION '"+source+"' PUBLICATION "+name+" WITH (create_slot = false, slot_name = '"+name+"')")
	return db
}

func (r *replicas) exec(db *bun.DB, statement string, args ...any) {
	r.t.Helper()
	_, err := db.ExecContext(r.t.Context(), statement, args...)
	require.NoError(r.t, err, statement)
}

func (r *replicas) number(db *bun.DB, query string) (n int) {
	r.t.Helper()
	require.NoError(r.t, db.NewRaw(query).Scan(r.t.Context(), &n), query)
	return n
}

// syncing is how many tables are not copied yet.
func (r *replicas) syncing() (n int) {
	for _, db := range r.green {
		n += r.number(db, "SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'")
	}
	return n
}

// refresh is what the subscriber to the single days has to say when the publisher has made new ones.
func (r *replicas) refresh() {
	r.t.Helper()
	r.exec(r.green["by_leaf"], "ALTER SUBSCRIPTION by_leaf REFRESH PUBLICATION")
	await.True(r.t, func() bool { return r.syncing() == 0 || r.errors("by_leaf") > 0 }, "the new days were copied")
	require.Zero(r.t, r.errors("by_leaf"), "see the log of the server")
}

func (r *replicas) errors(name string) int {
	r.t.Helper()
	return r.number(r.green[name], "SELECT apply_error_count + sync_error_count FROM pg_stat_subscription_stats WHERE subname = '"+name+"'")
}

// requireEqual waits until the subscribers have all that the publisher has, table by table.
func (r *replicas) requireEqual(when string) {
	r.t.Helper()
	for _, table := range r.tables() {
		content := fmt.Sprintf("SELECT coalesce(string_agg(t::text, E'\n' ORDER BY t::text), '') FROM %s t", table)
		var want, got string
		require.NoError(r.t, r.blue.NewRaw(content).Scan(r.t.Context(), &want))
		for name, db := range r.green {
			await.True(r.t, func() bool {
				require.NoError(r.t, db.NewRaw(content).Scan(r.t.Context(), &got))
				return got == want || r.errors(name) > 0
			}, "%s: %s is equal in %s", when, table, name)
			require.Zero(r.t, r.errors(name), "%s: errors of %s, see the log of the server", when, name)
		}
	}
}

// tables are all that are replicated, each with its days.
func (r *replicas) tables() (names []string) {
	r.t.Helper()
	require.NoError(r.t, r.blue.NewRaw(`SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p')
		AND relpersistence = 'p' AND NOT relispartition ORDER BY 1`).Scan(r.t.Context(), &names))
	require.Greater(r.t, len(names), 20)
	return names
}

// Everything that oncebox deletes and updates is deleted and updated at subscribers to all tables, and nothing stops them: a subscriber that
// cannot apply one change of one table stands still with all tables of the database.
func TestSubscribersToAllTablesStayEqual(t *testing.T) {
	r := newReplicas(t)
	broker := memory.New(nil)
	app, stop := r.service(broker)
	for round := range nightly.N(1, 10) {
		r.events(app, broker, fmt.Sprint("round ", round))
		r.keys(app, fmt.Sprint("round ", round))
	}
	stop()
	r.refresh()
	r.requireEqual("the service has stopped")
	r.days(app)
	r.requireEqual("days were made and dropped")
	r.everyTable()
	for _, table := range r.tables() {
		r.exec(r.blue.DB, "DELETE FROM "+table+" WHERE hashtext("+table+"::text) % 2 = 0")
	}
	r.requireEqual("half of each table was deleted")
	r.midnight()
	r.late()
	r.takeOver()
}

func (r *replicas) service(broker *memory.Broker) (app *oncebox.App, stop func()) {
	r.t.Helper()
	cfg := apptest.Config()
	cfg.Inbox.Retry.Tries, cfg.Inbox.Retry.Delay, cfg.Inbox.PollInterval = 1, 10*time.Millisecond, 10*time.Millisecond
	cfg.Projector.MaxRetryAttempts = 2
	app, err := oncebox.New(r.blue.DB, broker, cfg)
	require.NoError(r.t, err)
	failing := func(err error) messaging.HandlerFunc {
		var seen sync.Map
		return func(_ context.Context, m *messaging.Message) error {
			if _, again := seen.LoadOrStore(m.ID, nil); again {
				return nil
			}
			return err
		}
	}
	app.Consume("order", "summary", readmodel.New(app.Inbox, "summary", failing(nil)))
	app.Consume("order", "parks", failing(errors.New("not now")))
	app.Consume("order", "gives up", failing(messaging.Permanent(errors.New("never"))))
	app.Consume("order", "leased", messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error {
		_, err := step.Call(ctx, "pay", func(context.Context, string) (int, error) { return 1, nil })
		return err
	}), inbox.Leased())
	return app, apptest.Run(r.t, app)
}

// events brings events to each of their ends.
func (r *replicas) events(app *oncebox.App, broker *memory.Broker, round string) {
	r.t.Helper()
	ctx, by, key := r.t.Context(), operator.By{Actor: "test", Reason: "test"}, event.WithOrderingKey("k")
	add := func(typ string, opts ...event.AddOption) (id string) {
		require.NoError(r.t, app.UoW.Do(ctx, func(_ context.Context, u *uow.Unit) error {
			return u.Add("order", []byte("{}"), append(opts, event.WithType(typ), event.WithHeader("round", round))...)
		}))
		require.NoError(r.t, r.blue.NewRaw("SELECT id FROM outbox_messages WHERE event_type = ? ORDER BY sequence DESC LIMIT 1", typ).Scan(ctx, &id))
		return id
	}
	status := func(id, want string) {
		await.True(r.t, func() bool {
			n, err := r.blue.NewSelect().TableExpr("outbox_messages").Where("id = ? AND status = ?", id, want).Count(ctx)
			return err == nil && n > 0
		}, "%s: %s", id, want)
	}
	refused := map[string]int{}
	broker.Refuse(func(e event.Envelope) error {
		switch refused[e.ID]++; {
		case e.Type == "dies", e.Type == "refused" && refused[e.ID] == 1:
			return errors.New("not now")
		}
		return nil
	})
	sent := []string{add("plain", key, event.WithDedupKey(round)), add("refused", key), add("refused", key)}
	add("plain", key, event.WithDedupKey(round))
	for _, id := range sent {
		status(id, "SENT")
	}
	dead := []string{add("dies", key), add("dies", key), add("dies", key)}
	status(dead[0], "DEAD")
	broker.Refuse(nil)
	require.NoError(r.t, app.Outbox.Dead().Discard(ctx, dead[0], by))
	status(dead[2], "SENT")
	broker.Refuse(func(e event.Envelope) error {
		return map[string]error{"dies": messaging.Permanent(errors.New("never"))}[e.Type]
	})
	dead = []string{add("dies", key), add("dies", key)}
	status(dead[0], "DEAD")
	broker.Refuse(nil)
	require.NoError(r.t, app.Outbox.Dead().ReplayEdited(ctx, dead[0], []byte(`{"a":1}`), by))
	status(dead[1], "SENT")

	later := event.WithNotBefore(time.Now().Add(time.Hour))
	moved, cancelled := add("later", later), add("later", later)
	status(moved, "NEW")
	require.NoError(r.t, app.Outbox.Delayed().CancelByHand(ctx, cancelled, by))
	require.NoError(r.t, app.Outbox.Delayed().RescheduleByHand(ctx, moved, time.Now(), by))
	status(moved, "SENT")
	require.NoError(r.t, app.Outbox.Tenants().Pause(ctx, "default", by))
	paused := add("plain", key)
	require.NoError(r.t, app.Outbox.Tenants().Resume(ctx, "default", by))
	status(paused, "SENT")
	outboxtest.Move(r.t, app.Outbox, "moved"+round, 1)
	_, err := app.Outbox.Upkeep().Reconcile(ctx)
	require.NoError(r.t, err)

	await.True(r.t, func() bool {
		letters, err := app.Inbox.Dead().List(ctx, operator.DeadFilter{}, nil, 100)
		require.NoError(r.t, err)
		return len(letters) > 1
	}, "messages were given up")
	letters, err := app.Inbox.Dead().List(ctx, operator.DeadFilter{}, nil, 2)
	require.NoError(r.t, err)
	require.NoError(r.t, app.Inbox.Dead().Discard(ctx, letters[0].Key, operator.By{Actor: "test", Reason: "test"}))
	require.NoError(r.t, app.Inbox.Dead().ReplayEdited(ctx, letters[1].Key, []byte("{}"), operator.By{Actor: "test", Reason: "test"}))
	await.True(r.t, func() bool {
		_, err = app.Inbox.Dead().ReplayAll(ctx, operator.DeadFilter{}, operator.By{Actor: "test", Reason: "test"}, nil)
		require.NoError(r.t, err)
		return r.number(r.blue.DB, "SELECT (SELECT count(*) FROM inbox_parked) + (SELECT count(*) FROM inbox_dead)") == 0
	}, "nothing is parked")
}

// keys makes an idempotency key for each way in which a key can end.
func (r *replicas) keys(app *oncebox.App, round string) {
	r.t.Helper()
	ctx, keys := r.t.Context(), app.Idempotency
	scope := idempotency.Scope{Tenant: "t", Anonymous: true, Path: "pay", Key: round}
	require.NoError(r.t, app.UoW.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		_, err := idempotency.Do(ctx, keys, u.DB(), scope, 1, func(context.Context) (int, error) { return 1, nil })
		return err
	}))
	scope.Key += " leased"
	key, err := keys.Key(scope)
	require.NoError(r.t, err)
	claim, _, err := keys.Claim(ctx, r.blue.DB, key, idempotency.NewFingerprint("f", nil))
	require.NoError(r.t, err)
	require.ErrorIs(r.t, claim.Run(ctx, func(ctx context.Context) error {
		_, err := idempotency.StepOnce(ctx, "pay", func(context.Context) (int, error) { return 1, errors.New("no answer") })
		return err
	}), idempotency.ErrStepUnknown)
	require.NoError(r.t, claim.Release(ctx))
	open, err := keys.Unknown(ctx, r.blue.DB, "t", 1)
	require.NoError(r.t, err)
	done, err := keys.Resolve(ctx, r.blue.DB, open[0], idempotency.StepDone(1))
	require.NoError(r.t, err)
	require.True(r.t, done)
	r.exec(r.blue.DB, "UPDATE idempotency_keys SET expires_at = clock_timestamp() WHERE hashtext(key_hash::text) % 2 = 0")
	_, err = keys.Purge(ctx, r.blue.DB)
	require.NoError(r.t, err)
}
