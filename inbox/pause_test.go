package inbox_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/consumers"
	"github.com/oncebox/oncebox/inbox/parked"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
)

// billing returns an inbox that stands for a process with the consumers billing and shipping.
func (w *world) billing() *inbox.Inbox {
	box := w.hasty(nil)
	require.NoError(w.t, box.Consume("order", "billing", messaging.HandlerFunc(w.effect)))
	box.Wrap("shipping", messaging.HandlerFunc(w.effect))
	return box
}

// park parks messages of a consumer that are due at once.
func (w *world) park(consumer string, list ...*messaging.Message) {
	w.t.Helper()
	h := newBox(w.units, nil).Wrap(consumer, messaging.HandlerFunc(func(context.Context, *messaging.Message) error {
		return messaging.RetryAfter(time.Nanosecond, errNotNow)
	}))
	for _, m := range list {
		settleLater(w.t, h, m)
	}
}

// begunWith returns the effects of messages whose id has the prefix, in their order.
func (w *world) begunWith(prefix string) []string {
	return slices.DeleteFunc(w.effects(), func(what string) bool { return !strings.HasPrefix(what, prefix) })
}

// A pause holds in each process: in running ones, in one that starts later, and for keys of a process that was killed.
func TestPauseHoldsInEveryProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	start(t, w.billing(), nil)
	start(t, w.billing(), nil)
	w.awaitStates("stored", "stored")
	handles := w.operator().Consumers()
	require.NoError(t, handles.Pause(t.Context(), "billing", 0, ann))
	w.awaitStates("paused", "paused")
	require.Empty(t, w.trouble())

	w.park("billing", ordered("b/a1", "a"), ordered("b/a2", "a"), ordered("b/b1", "b"), ordered("b/b2", "b"))
	w.exec("UPDATE inbox_key SET owner = gen_random_uuid(), due_at = now() WHERE consumer = 'billing' AND ordering_key LIKE '%a'")
	start(t, w.billing(), nil)
	w.awaitStates("paused", "paused", "paused")
	w.park("shipping", ordered("s/1", "x"), ordered("s/2", "y"))
	await.True(t, func() bool { return len(w.begunWith("s/")) == 2 }, "the other consumer goes on")
	require.Empty(t, w.begunWith("b/"), "nothing of the paused consumer starts")

	require.NoError(t, handles.Resume(t.Context(), "billing", ann))
	await.True(t, func() bool { return len(w.begunWith("b/")) == 4 }, "what waited is handled")
	require.Equal(t, []string{"b/a1", "b/a2"}, w.begunWith("b/a"))
	require.Equal(t, []string{"b/b1", "b/b2"}, w.begunWith("b/b"))
}

// A parked message whose handler runs when the pause begins is handled, and holds up no other consumer meanwhile.
func TestPauseLetsRunningHandlersEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.hasty(nil)
	began, release := make(chan struct{}, 2), make(chan struct{})
	require.NoError(t, box.Consume("order", "billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		began <- struct{}{}
		<-release
		return w.effect(ctx, m)
	})))
	box.Wrap("shipping", messaging.HandlerFunc(w.effect))
	w.park("billing", ordered("b/1", "a"), ordered("b/2", "a"))
	start(t, box, nil)
	await.Receive(t, began, "the first message runs")
	require.NoError(t, w.operator().Consumers().Pause(t.Context(), "billing", 0, ann))
	w.awaitStates("paused")
	w.park("shipping", ordered("s/1", "x"))
	await.True(t, func() bool { return len(w.begunWith("s/")) == 1 }, "the other consumer goes on")
	close(release)
	await.True(t, func() bool { return len(w.begunWith("b/")) == 1 }, "the first message is handled")
	w.park("shipping", ordered("s/2", "x"))
	await.True(t, func() bool { return len(w.begunWith("s/")) == 2 }, "the other consumer goes on")
	require.Equal(t, []string{"b/1"}, w.begunWith("b/"))
	require.NoError(t, w.operator().Consumers().Resume(t.Context(), "billing", ann))
	await.True(t, func() bool { return len(w.begunWith("b/")) == 2 }, "the next message is handled")
}

// The clock of the database ends a pause that has an end.
func TestPauseEndsByItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	handles := w.operator().Consumers()
	require.NoError(t, w.billing().SubscribeAll(t.Context()))
	require.NoError(t, handles.Pause(t.Context(), "billing", time.Hour, ann))
	list, err := handles.Paused(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, time.Hour, list[0].Until.Sub(list[0].Since).Round(time.Minute))
	require.Equal(t, "ann tried it", list[0].Actor+" "+list[0].Reason)

	w.park("billing", ordered("b/1", "a"))
	start(t, w.billing(), nil)
	w.awaitStates("paused")
	require.Empty(t, w.effects())
	w.exec("UPDATE inbox_pause SET ends_at = now()")
	w.awaitEffects(1)
	require.ErrorIs(t, handles.Resume(t.Context(), "billing", ann), consumers.ErrNotPaused)
	require.NoError(t, handles.Pause(t.Context(), "billing", 0, ann), "the ended pause is replaced")
	require.NoError(t, handles.Resume(t.Context(), "billing", ann))
	require.NoError(t, handles.Pause(t.Context(), "billing", time.Millisecond, ann))
	w.park("billing", ordered("b/2", "a"))
	w.awaitEffects(2)
}

func TestPausesAreRefusedAndAudited(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.billing().SubscribeAll(t.Context()))
	ctx, handles := t.Context(), w.operator().Consumers()
	require.ErrorIs(t, handles.Pause(ctx, "nobody", 0, ann), consumers.ErrUnknown)
	require.ErrorIs(t, handles.Forget(ctx, "nobody", ann), consumers.ErrUnknown)
	require.ErrorContains(t, handles.Pause(ctx, "billing", 0, operator.By{Actor: "ann"}), "By.Reason is empty")
	require.ErrorContains(t, handles.Pause(ctx, "billing", -time.Second, ann), "below 0")
	require.ErrorContains(t, handles.Pause(ctx, "billing@1", 0, ann), "give the name of the read model")
	require.ErrorContains(t, handles.Resume(ctx, "", ann), "is empty")
	require.ErrorIs(t, handles.Resume(ctx, "billing", ann), consumers.ErrNotPaused)
	require.NoError(t, handles.Pause(ctx, "billing", 0, ann))
	require.ErrorIs(t, handles.Pause(ctx, "billing", time.Hour, ann), consumers.ErrPaused)
	require.NoError(t, handles.Resume(ctx, "billing", ann))
	require.NoError(t, handles.Pause(ctx, "billing", 2*time.Hour, ann))
	stop := start(t, w.billing(), nil)
	w.awaitStates("paused")
	require.ErrorIs(t, handles.Forget(ctx, "billing", ann), consumers.ErrRuns)
	stop()
	w.exec("INSERT INTO inbox_consumer (consumer, beat_at) VALUES ('parked only', now())")
	require.ErrorIs(t, handles.Forget(ctx, "parked only", ann), consumers.ErrRuns, "its heartbeat is new")
	require.NoError(t, handles.Forget(ctx, "billing", ann))
	require.Zero(t, w.count("inbox_pause"))

	entries, err := w.operator().Audit(ctx, operator.AuditFilter{Consumer: "billing"}, nil, 0)
	require.NoError(t, err)
	var said []string
	for _, e := range entries {
		said = append(said, fmt.Sprint(e.Actor, " ", e.Action, ": ", e.Reason))
	}
	require.Equal(t, []string{"ann forget: tried it", "ann pause: for 02:00:00: tried it", "ann resume: tried it", "ann pause: tried it"}, said)
}

// After an outage, 400 keys that fail are retried at a rate. Each key keeps its order, and the audit names each message.
func TestManyFailingKeysAreRetriedAtARate(t *testing.T) {
	t.Parallel()
	const keys = 400
	w := newWorld(t)
	down := w.box.Wrap("billing", messaging.HandlerFunc(func(context.Context, *messaging.Message) error {
		return messaging.RetryAfter(time.Hour, errNotNow)
	}))
	for n := range keys {
		key := fmt.Sprintf("k%03d/", n)
		settleLater(t, down, ordered(key+"1", key))
		settleLater(t, down, ordered(key+"2", key))
	}
	start(t, w.billing(), nil)
	var steps []int64
	n, err := w.operator().Parked().RetryAll(t.Context(), parked.Filter{Consumer: "billing", Error: errNotNow.Error()}, ann,
		&operator.Bulk{Rate: 400, BatchSize: 100, Progress: func(done int64) { steps = append(steps, done) }})
	require.NoError(t, err)
	require.EqualValues(t, keys, n)
	require.Greater(t, len(steps), 1, "in batches")
	w.awaitEffects(2 * keys)
	last := map[string]string{}
	for _, what := range w.effects() {
		key, number, _ := strings.Cut(what, "/")
		require.Less(t, last[key], number, key)
		last[key] = number
	}
	require.Equal(t, keys, w.count("oncebox_audit WHERE actor = 'ann' AND action = 'retry' AND reason = 'tried it'"))
}
