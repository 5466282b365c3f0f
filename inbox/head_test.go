package inbox_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/parked"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/retry"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

// slowHead is a process whose handler of the parked message "slow" runs until the test ends it.
func (w *world) slowHead(key string) (end func()) {
	w.t.Helper()
	began, ended := make(chan struct{}), make(chan struct{})
	box := w.process(nil)
	h := box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		if m.ID == "slow" {
			close(began)
			<-ended
		}
		return w.effect(ctx, m)
	}), inbox.StoreFirst())
	require.NoError(w.t, h.Handle(w.t.Context(), ordered("slow", key)))
	runParked(w.t, box)
	await.Receive(w.t, began, "the handler runs")
	return func() { close(ended) }
}

// A publisher or a receiver of a key is not held up by a handler that takes long.
func TestMessagesAreStoredWhileTheFirstOfTheirKeyIsHandled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	end := w.slowHead("o1")
	storing := w.hasty(func(c *inbox.Config) { c.LockTimeout = 20 * time.Millisecond }).
		Wrap("billing", messaging.HandlerFunc(w.effect), inbox.StoreFirst())
	for n := range 3 {
		m := ordered(fmt.Sprint("behind ", n), "o1")
		require.NoError(t, within(t, func() error { return storing.Handle(t.Context(), m) }))
	}
	end()
	w.awaitEffects(4)
	require.Equal(t, []string{"slow", "behind 0", "behind 1", "behind 2"}, w.effects())
	await.True(t, func() bool { return len(w.keys()) == 0 }, "the key flows")
}

// A batch has a message of a key whose first message is being handled, and one of a key that flows. While the handler of the second runs,
// the handler of the first message ends: it waits for no batch.
func TestBatchHoldsUpNoHandlerOfAParkedMessage(t *testing.T) {
	t.Parallel()
	for _, behind := range []*messaging.Message{ordered("behind", "o1"), ordered("slow", "o1")} {
		t.Run(behind.ID, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			end := w.slowHead("o1")
			began, ended := make(chan struct{}), make(chan struct{})
			bulk := w.settledBox().WrapBatch("billing", func(ctx context.Context, msgs []*messaging.Message) error {
				close(began)
				await.Receive(t, ended, "the handler of the parked message has ended")
				return w.effect(ctx, msgs[0])
			})
			done := make(chan error, 1)
			go func() {
				done <- bulk.HandleBatch(t.Context(), []*messaging.Message{ordered("other", "o2"), behind, ordered("another", "o2")})
			}()
			await.Receive(t, began, "the batch is handled")
			end()
			await.True(t, func() bool { return slices.Contains(w.effects(), "slow") }, "the handler of the parked message ends")
			close(ended)
			require.NoError(t, await.Receive(t, done, "the batch ends"))
			want := map[string][]string{"behind": {"behind", "other", "slow"}, "slow": {"other", "slow"}}[behind.ID]
			await.True(t, func() bool { return len(w.effects()) == len(want) }, "all are handled")
			require.ElementsMatch(t, want, w.effects())
		})
	}
}

// A process lost its key while its handler ran, because it was suspended. The process that has the key now handles neither the same message
// nor the one behind it.
func TestMessageIsHandledOnceAlthoughItsKeyIsTakenOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	end := w.slowHead("o1")
	second := w.process(nil)
	var ran atomic.Int64
	h := second.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		ran.Add(1)
		return w.effect(ctx, m)
	}), inbox.StoreFirst())
	require.NoError(t, h.Handle(t.Context(), ordered("behind", "o1")))
	owner := func() string {
		return column[string](t, w.db.DB, "SELECT coalesce(owner::text, '') FROM inbox_key")[0]
	}
	for _, doubtful := range []bool{false, true} {
		first := owner()
		w.exec("UPDATE inbox_key SET owner = CASE WHEN ? THEN gen_random_uuid() END, due_at = clock_timestamp()", doubtful)
		if !doubtful {
			runParked(t, second)
		}
		await.True(t, func() bool { o := owner(); return o != "" && o != first }, "the second process takes the key")
		await.True(t, func() bool { return owner() == "" }, "it gives the key back")
	}
	require.Zero(t, ran.Load())
	end()
	w.awaitEffects(2)
	require.Equal(t, []string{"slow", "behind"}, w.effects())
	await.True(t, func() bool { return len(w.keys()) == 0 }, "the key flows")
}

// An operator gives a message up while its handler runs, and the handler fails. Both want the message and its key at the same moment.
func TestGiveUpOfAMessageWhoseHandlerFails(t *testing.T) {
	t.Parallel()
	const rounds = 20
	w := newWorld(t)
	var book logbook.Book
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(book.String())
		}
	})
	began, fail := make(chan string), make(chan struct{})
	box := inbox.New(uow.New(w.db.Another(t), &uow.Config{Source: "test", Telemetry: telemetry.Config{Logger: quiet()}}), &inbox.Config{
		Retry: inbox.RetryPolicy{Policy: retry.Policy{Delay: time.Hour, MaxDelay: time.Hour}}, PollInterval: 20 * time.Millisecond,
		Telemetry:   telemetry.Config{Logger: book.Logger()},
		ParkedLease: time.Hour, // a machine that stands still for half a minute would have the message tried again
	})
	h := box.Wrap("billing", messaging.HandlerFunc(func(_ context.Context, m *messaging.Message) error {
		began <- m.ID
		<-fail
		return errNotNow
	}), inbox.StoreFirst())
	runParked(t, box)
	waits := func() bool {
		return column[int](t, w.db.DB, "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) "+
			"WHERE NOT l.granted AND a.query LIKE '%inbox_parked p JOIN %inbox_key%FOR UPDATE OF p%'")[0] > 0
	}
	for n := range rounds {
		m := ordered(fmt.Sprint(n), fmt.Sprint("o", n))
		require.NoError(t, h.Handle(t.Context(), m))
		await.Receive(t, began, "the handler runs")
		parked, err := w.box.Parked().List(t.Context(), parked.Filter{OrderingKey: m.OrderingKey()}, nil, 1)
		require.NoError(t, err)
		require.Len(t, parked, 1)
		done := make(chan error, 1)
		go func() { done <- w.operator().Parked().GiveUp(t.Context(), parked[0].Key, ann) }()
		await.True(t, waits, "the operator waits for the handler")
		fail <- struct{}{}
		require.NoError(t, await.Receive(t, done, "the message is given up"))
	}
	require.Len(t, w.dead(), rounds)
	require.NotContains(t, book.String(), "deadlock")
}
