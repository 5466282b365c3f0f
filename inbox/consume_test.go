package inbox_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/readmodel"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/telemetry"
)

// One call runs everything that a consumer needs: messages are handled in a transaction, failed ones are parked and
// handled later, and the partitions are made.
func TestConsumerAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	broker := memory.New(nil)
	t.Cleanup(func() { require.NoError(t, broker.Close()) })
	box := w.hasty(func(c *inbox.Config) { c.Retry.Tries = 1 })
	var once sync.Once
	fail := func() (err error) {
		once.Do(func() { err = errNotNow })
		return err
	}
	require.NoError(t, box.Consume("order", "shipping", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		if err := fail(); err != nil {
			return err
		}
		return w.effect(ctx, m)
	})))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- box.Run(ctx, broker) }()
	await.True(t, func() bool { return box.Health(time.Minute) == nil }, "the consumer is subscribed")
	publish := func(ids ...string) {
		var msgs []event.Envelope
		for _, id := range ids {
			msgs = append(msgs, ordered(id, "o1").Envelope)
		}
		require.NoError(t, broker.Publish(t.Context(), msgs))
	}
	publish("1", "2", "3")
	w.awaitEffects(3)
	require.Equal(t, []string{"1", "2", "3"}, w.effects())
	require.Error(t, box.Consume("order", "late", messaging.HandlerFunc(w.effect)), "it would never run")
	require.NotEmpty(t, column[string](t, w.db.DB, "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhrelid::regclass::text ~ 'inbox_2'"))
	stop()
	require.NoError(t, await.Receive(t, ended, "Run ends"))
}

func TestConsumeNamesWhatCannotBeUsed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := messaging.HandlerFunc(w.effect)
	bulk := func(context.Context, []*messaging.Message) error { return nil }
	require.NoError(t, w.box.Consume("order", "one", h))
	for text, err := range map[string]error{
		"there is such a consumer already": w.box.Consume("order", "one", h),
		"the handler is nil":               w.box.Consume("order", "two", nil),
		"cannot have a lease":              w.box.ConsumeBatch("order", "two", bulk, inbox.Leased()),
		"Concurrency is -2":                w.box.Consume("order", "two", h, inbox.Concurrency(-2)),
		"RetryPolicy.MaxCrashes is -5":     w.box.Consume("order", "two", h, inbox.Retry(inbox.RetryPolicy{MaxCrashes: -5})),
		"only options for receiving":       w.box.Consume("order", "sum", readmodel.New(w.box, "sum", h), inbox.StoreFirst()),
		"has its own consumer name":        w.box.Consume("order", "two", readmodel.New(w.box, "other", h)),
	} {
		require.ErrorContains(t, err, text)
	}
	require.NoError(t, w.box.Consume("order", "sums", readmodel.New(w.box, "sums", h), inbox.Batch(10)))
	require.Len(t, w.box.Subscriptions(), 2)
}

// Messages that are parked while no process handles parked messages wait for ever: the log says so, as an error, once a minute at most.
func TestParkedMessagesThatNobodyHandlesAreAnError(t *testing.T) {
	t.Parallel()
	const text = "level=ERROR msg=\"oncebox: messages are parked, but no process"
	for name, others := range map[string]bool{"nobody": false, "another process": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var log logbook.Book
			box := inbox.New(w.units, &inbox.Config{Retry: inbox.RetryPolicy{Tries: 1},
				Telemetry: telemetry.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}})
			fail := messaging.HandlerFunc(func(context.Context, *messaging.Message) error { return errNotNow })
			if others {
				another := w.hasty(nil)
				another.Wrap("billing", fail)
				runParked(t, another)
				running := func() int { return len(column[string](t, w.db.DB, "SELECT consumer FROM inbox_consumer")) }
				await.True(t, func() bool { return running() == 1 }, "it is written down that it runs")
			}
			h := box.Wrap("billing", fail)
			require.NoError(t, h.Handle(t.Context(), ordered("1", "o1")))
			require.NoError(t, h.Handle(t.Context(), ordered("2", "o2")))
			if others {
				require.Zero(t, log.Count(text))
				w.exec("UPDATE inbox_consumer SET beat_at = beat_at - interval '1 hour'")
				again := inbox.New(w.units, &inbox.Config{Retry: inbox.RetryPolicy{Tries: 1},
					Telemetry: telemetry.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}})
				require.NoError(t, again.Wrap("billing", fail).Handle(t.Context(), ordered("3", "o3")))
			}
			require.Equal(t, 1, log.Count(text))
		})
	}
}
