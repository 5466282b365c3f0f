package oncebox_test

import (
	"context"
	"errors"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/readmodel"
	"github.com/oncebox/oncebox/internal/apptest"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/uow"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// With a broker and without one: every committed event is handled once by each consumer, whichever of them fails first.
func TestRoundTrip(t *testing.T) {
	for name, broker := range map[string]oncebox.Broker{"memory": memory.New(nil), "direct": nil} {
		t.Run(name, func(t *testing.T) {
			db := pgtest.Migrated(t)
			app, err := oncebox.New(db.DB, broker, apptest.Config())
			require.NoError(t, err)
			event.Register[OrderPlaced](app.Registry)
			_, err = db.Exec(`CREATE TABLE handled (consumer text, order_id text, correlation text)`)
			require.NoError(t, err)

			var failures atomic.Int32
			failures.Store(3)
			for _, consumer := range []string{"one", "two"} {
				router := messaging.NewRouter(app.Registry)
				messaging.Handle(router, func(ctx context.Context, e OrderPlaced) error {
					_, err := app.UoW.DB(ctx).NewRaw("INSERT INTO handled VALUES (?, ?, ?)",
						consumer, e.OrderID, event.MetadataFrom(ctx)[event.CorrelationID]).Exec(ctx)
					if failures.Add(-1) >= 0 {
						return errors.New("not now")
					}
					return err
				})
				app.Consume("order", consumer, router)
			}
			stop := apptest.Run(t, app)
			ctx := event.WithMetadata(t.Context(), event.Metadata{event.CorrelationID: "c-1"})
			for _, id := range []string{"a", "b", "c"} {
				require.NoError(t, app.UoW.Do(ctx, func(_ context.Context, u *uow.Unit) error {
					u.Track(PlaceOrder(id, 1))
					return nil
				}))
			}
			require.Error(t, app.UoW.Do(ctx, func(_ context.Context, u *uow.Unit) error {
				u.Track(PlaceOrder("ghost", 1))
				return errors.New("no")
			}))
			handled := func() (rows []string) {
				require.NoError(t, db.NewRaw("SELECT consumer || order_id || correlation FROM handled ORDER BY 1").Scan(t.Context(), &rows))
				return rows
			}
			await.True(t, func() bool { return len(handled()) >= 6 }, "six are handled")
			stop()
			require.Equal(t, []string{"oneac-1", "onebc-1", "onecc-1", "twoac-1", "twobc-1", "twocc-1"}, handled())
		})
	}
}

func TestNewReportsWhatIsMissing(t *testing.T) {
	_, err := oncebox.New(nil, nil, config.Config{})
	require.ErrorContains(t, err, "config.OpenDB")
	db := pgtest.Open(t)
	_, err = oncebox.New(db.DB, nil, config.Config{})
	require.ErrorContains(t, err, "ONCEBOX_SOURCE")
	cfg := apptest.Config()
	cfg.Projector.BatchSize = -1
	cfg.Outbox.Retention = time.Second
	_, err = oncebox.New(db.DB, nil, cfg)
	require.ErrorContains(t, err, "BatchSize")
	require.ErrorContains(t, err, "Retention")
}

func TestRunNamesTheCallThatMakesTheTables(t *testing.T) {
	db := pgtest.Open(t)
	app, err := oncebox.New(db.DB, nil, apptest.Config())
	require.NoError(t, err)
	require.ErrorContains(t, app.Run(t.Context()), "App.Migrate")
	require.NoError(t, app.Migrate(t.Context()))
	require.ErrorContains(t, app.Run(t.Context(), oncebox.Part(99)), "99")
}

func TestConsumeTwicePanics(t *testing.T) {
	db := pgtest.Open(t)
	app, err := oncebox.New(db.DB, nil, apptest.Config())
	require.NoError(t, err)
	h := messaging.HandlerFunc(func(context.Context, *messaging.Message) error { return nil })
	app.Consume("order", "one", h)
	app.Consume("order", "two", h)
	require.Panics(t, func() { app.Consume("order", "one", h) })
	require.Panics(t, func() { app.Consume("", "one", h) })
	require.Panics(t, func() { app.Consume("other", "one", h, inbox.Concurrency(-2)) })
	require.Panics(t, func() { app.Consume("other", "one", h, inbox.Batch(-2)) })

	p := readmodel.New(app.Inbox, "summary", h)
	app.Consume("order", "summary", p)
	app.Consume("payment", "summary", p)
	require.Panics(t, func() { app.Consume("order", "another name", p) })
	require.Panics(t, func() { app.Consume("other", "summary", p, inbox.StoreFirst()) })
}

// The adapter for Pulsar and the codec for Protocol Buffers are linked by programs that name them, and by nothing else.
func TestNothingLinksTheBrokerUnasked(t *testing.T) {
	for _, pkg := range []string{".", "./config", "./event/eventtest", "./httpmw", "./inbox", "./projector", "./examples/quickstart/memory"} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", pkg).Output()
		require.NoError(t, err)
		for _, banned := range []string{"apache/pulsar-client-go", "google.golang.org/protobuf", "opentelemetry.io/otel/sdk", "testify"} {
			require.NotContains(t, string(out), banned, "%s links %s", pkg, banned)
		}
	}
}

// If the program opened the database itself, only Run can report that the pooler needs a setting.
func TestRunNamesTheSettingForAPooler(t *testing.T) {
	db := pgtest.Migrated(t).Pooled(t)
	app, err := oncebox.New(db.DB, nil, apptest.Config())
	require.NoError(t, err)
	require.ErrorContains(t, app.Run(t.Context(), oncebox.Cleaner), "set ONCEBOX_POOLER=true")
}
