package oncebox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/consumers"
	"github.com/oncebox/oncebox/internal/apptest"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/retry"
	"github.com/oncebox/oncebox/uow"
)

// place announces orders.
func place(t *testing.T, app *oncebox.App, ids ...string) {
	t.Helper()
	for _, id := range ids {
		require.NoError(t, app.UoW.Do(context.Background(), func(_ context.Context, u *uow.Unit) error {
			u.Track(PlaceOrder(id, 1))
			return nil
		}))
	}
}

func TestPauseAndResume(t *testing.T) {
	db := pgtest.Migrated(t)
	broker := memory.New(nil)
	app, err := oncebox.New(db.DB, broker, apptest.Config())
	require.NoError(t, err)
	event.Register[OrderPlaced](app.Registry)
	var one, two atomic.Int32
	for name, count := range map[string]*atomic.Int32{"one": &one, "two": &two} {
		app.Consume("order", name, messaging.HandlerFunc(func(context.Context, *messaging.Message) error {
			count.Add(1)
			return nil
		}))
	}
	apptest.Run(t, app)
	await.True(t, func() bool { return app.Ready(context.Background()) == nil }, "the app is ready")
	ann := operator.By{Actor: "ann", Reason: "smtp is down"}
	require.ErrorIs(t, app.Inbox.Consumers().Pause(t.Context(), "three", 0, ann), consumers.ErrUnknown)
	await.True(t, func() bool {
		err := app.Inbox.Consumers().Pause(t.Context(), "one", 0, ann)
		if errors.Is(err, consumers.ErrUnknown) { // an app is ready before the first report of its consumers is written
			return false
		}
		require.NoError(t, err)
		return true
	}, "the consumer has reported")
	awaitPaused(t, app, "one")
	place(t, app, "a", "b", "c")
	await.True(t, func() bool { return two.Load() == 3 && len(broker.Messages("order")) == 3 }, "the other consumer has three messages")
	require.Zero(t, one.Load())
	require.NoError(t, app.Ready(t.Context()), "it is on purpose")
	require.NoError(t, app.Inbox.Consumers().Resume(t.Context(), "one", ann))
	await.True(t, func() bool { return one.Load() == 3 }, "the consumer has three messages")
}

// awaitPaused waits until the process of the consumer reports that it has noticed the pause.
func awaitPaused(t *testing.T, app *oncebox.App, name string) {
	t.Helper()
	await.True(t, func() bool {
		list, err := app.Inbox.State().Consumers(t.Context())
		require.NoError(t, err)
		for _, c := range list {
			if c.Consumer == name && len(c.Topics) == 1 && len(c.Topics[0].Processes) == 1 {
				return c.Topics[0].Processes[0].State == "paused"
			}
		}
		return false
	}, "%s is paused", name)
}

// Without a broker, too, a consumer that is paused has nothing handled, and the others go on.
func TestPauseWithoutABroker(t *testing.T) {
	db := pgtest.Migrated(t)
	app, err := oncebox.New(db.DB, nil, apptest.Config())
	require.NoError(t, err)
	event.Register[OrderPlaced](app.Registry)
	var one, two atomic.Int32
	for name, count := range map[string]*atomic.Int32{"one": &one, "two": &two} {
		app.Consume("order", name, messaging.HandlerFunc(func(context.Context, *messaging.Message) error {
			count.Add(1)
			return nil
		}))
	}
	ann := operator.By{Actor: "ann", Reason: "smtp is down"}
	require.NoError(t, app.Inbox.SubscribeAll(t.Context()))
	require.NoError(t, app.Inbox.Consumers().Pause(t.Context(), "one", 0, ann), "before it runs")
	apptest.Run(t, app)
	place(t, app, "a", "b", "c")
	await.True(t, func() bool { return two.Load() == 3 }, "the other consumer has three messages")
	require.Zero(t, one.Load())
	require.NoError(t, app.Inbox.Consumers().Resume(t.Context(), "one", ann))
	await.True(t, func() bool { return one.Load() == 3 }, "the consumer has three messages")
}

// Without a broker a handler that does not end, and a handler that fails, hold up neither another consumer nor other keys of their own, and as many
// messages are handled at once as the consumer says.
func TestHandlersHoldUpNoOtherWithoutABroker(t *testing.T) {
	const atOnce = 12
	db := pgtest.Migrated(t)
	cfg := apptest.Config()
	cfg.Inbox.Retry = inbox.RetryPolicy{Tries: 1, Policy: retry.Policy{Delay: time.Hour}}
	app, err := oncebox.New(db.DB, nil, cfg)
	require.NoError(t, err)
	event.Register[OrderPlaced](app.Registry)
	var fast, failed, failedLater atomic.Int32
	running, release := make(chan struct{}, atOnce), make(chan struct{})
	app.Consume("order", "slow", messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error {
		running <- struct{}{}
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}), inbox.Concurrency(atOnce))
	app.Consume("order", "failing", messaging.HandlerFunc(func(_ context.Context, m *messaging.Message) error {
		if m.AggregateID != "a" {
			failedLater.Add(1)
			return nil
		}
		failed.Add(1)
		return errors.New("not today")
	}))
	app.Consume("order", "fast", messaging.HandlerFunc(func(context.Context, *messaging.Message) error {
		fast.Add(1)
		return nil
	}))
	apptest.Run(t, app)
	ids := []string{"a", "a"}
	for n := range 2 * atOnce {
		ids = append(ids, fmt.Sprint("order-", n))
	}
	place(t, app, ids...)
	for range atOnce {
		await.Receive(t, running, "another handler of the slow consumer runs")
	}
	await.True(t, func() bool { return int(fast.Load()) == len(ids) }, "the fast consumer has everything")
	await.True(t, func() bool { return int(failedLater.Load()) == 2*atOnce }, "the failing consumer has the other keys")
	require.EqualValues(t, 1, failed.Load(), "what is behind a failed message waits")
	require.Empty(t, running, "no more at once than the consumer says")
	close(release)
	for range len(ids) - atOnce {
		await.Receive(t, running, "the slow consumer goes on")
	}
}

// A bulk writer gets several messages at once without being told how many.
func TestBulkWriterGetsSeveralMessages(t *testing.T) {
	db := pgtest.Migrated(t)
	cfg := apptest.Config()
	cfg.Inbox.CrashGuard = -1 // or the first messages are handled one by one
	app, err := oncebox.New(db.DB, memory.New(nil), cfg)
	require.NoError(t, err)
	event.Register[OrderPlaced](app.Registry)
	var most atomic.Int64
	app.ConsumeBatch("order", "bulk", func(_ context.Context, msgs []*messaging.Message) error {
		most.Store(max(most.Load(), int64(len(msgs))))
		return nil
	}, inbox.Concurrency(1))
	apptest.Run(t, app)
	n := 0
	await.True(t, func() bool {
		for range 10 {
			n++
			place(t, app, fmt.Sprint("o-", n))
		}
		return most.Load() > 1
	}, "a call with several messages")
}

// The signal ends the process: running handlers finish and their messages are acknowledged, and waiting messages are
// left to the next process.
func TestSigtermDrains(t *testing.T) {
	db := pgtest.Migrated(t)
	broker := memory.New(nil)
	t.Cleanup(func() { require.NoError(t, broker.Close()) })
	cfg := apptest.Config()
	cfg.Consumer.Concurrency = 1
	app, err := oncebox.New(db.DB, broker, cfg)
	require.NoError(t, err)
	event.Register[OrderPlaced](app.Registry)
	_, err = db.Exec(`CREATE TABLE handled (order_id text)`)
	require.NoError(t, err)
	signalled := make(chan struct{})
	app.Consume("order", "one", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			return err
		}
		<-signalled
		_, err := app.UoW.DB(ctx).NewRaw("INSERT INTO handled VALUES (?)", m.AggregateID).Exec(ctx)
		return err
	}))
	place(t, app, "a", "b")

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() { close(signalled) })
	require.NoError(t, app.Run(ctx))
	var handled []string
	require.NoError(t, db.NewRaw("SELECT order_id FROM handled").Scan(t.Context(), &handled))
	require.Len(t, handled, 1)

	r, err := broker.Subscribe(t.Context(), messaging.Subscription{Topic: "order", Name: "one"})
	require.NoError(t, err)
	for _, e := range broker.Messages("order") {
		if e.AggregateID == handled[0] {
			continue
		}
		m, err := r.Receive(t.Context())
		require.NoError(t, err)
		require.NotEqual(t, handled[0], m.AggregateID, "it was acknowledged")
	}
}

// A bulk writer, a handler under a lease and a plain handler in batches, with a broker and without one.
func TestConsumersOfEveryKind(t *testing.T) {
	for name, broker := range map[string]oncebox.Broker{"memory": memory.New(nil), "direct": nil} {
		t.Run(name, func(t *testing.T) {
			db := pgtest.Migrated(t)
			app, err := oncebox.New(db.DB, broker, apptest.Config())
			require.NoError(t, err)
			event.Register[OrderPlaced](app.Registry)
			_, err = db.Exec(`CREATE TABLE handled (consumer text, id text)`)
			require.NoError(t, err)
			note := func(ctx context.Context, consumer, id string) error {
				_, err := app.UoW.DB(ctx).NewRaw("INSERT INTO handled VALUES (?, ?)", consumer, id).Exec(ctx)
				return err
			}
			app.ConsumeBatch("order", "bulk", func(ctx context.Context, msgs []*messaging.Message) error {
				for _, m := range msgs {
					if err := note(ctx, "bulk", m.AggregateID); err != nil {
						return err
					}
				}
				return nil
			})
			app.Consume("order", "batches", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
				return note(ctx, "batches", m.AggregateID)
			}), inbox.Batch(10))
			app.Consume("order", "leased", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
				require.NotEmpty(t, inbox.Key(ctx))
				return inbox.StepInUnit(ctx, "note", func(ctx context.Context, _ *uow.Unit) error {
					return note(ctx, "leased", m.AggregateID)
				})
			}), inbox.Leased())
			require.Panics(t, func() { app.ConsumeBatch("order", "both", nil, inbox.Leased()) })

			stop := apptest.Run(t, app)
			place(t, app, "a", "b", "c")
			handled := func() (rows []string) {
				require.NoError(t, db.NewRaw("SELECT consumer || ' ' || id FROM handled ORDER BY 1").Scan(t.Context(), &rows))
				return rows
			}
			await.True(t, func() bool { return len(handled()) >= 9 }, "nine are handled")
			stop()
			require.Equal(t, []string{
				"batches a", "batches b", "batches c", "bulk a", "bulk b", "bulk c", "leased a", "leased b", "leased c",
			}, handled())
		})
	}
}
