package inbox_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/readmodel"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/eachtry"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/uow"
)

// A handler sees the same message on each try: when it came, when it comes again, from the table, and after an operator's replay.
func TestMessageIsTheSameOnEachTry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.hasty(func(c *inbox.Config) { c.Retry.Tries, c.Retry.MaxAttempts = 2, 4 })
	var v eachtry.Views
	all := 0
	for _, h := range []messaging.Handler{
		box.Wrap("plain", v.Handler("plain")),
		box.Wrap("unordered", v.Handler("unordered"), inbox.Unordered()),
		box.WrapLeased("leased", v.Handler("leased")),
		box.Wrap("stored first", v.Handler("stored first"), inbox.StoreFirst()),
		readmodel.New(box, "read-model", v.Handler("read-model")),
	} {
		for _, e := range eachtry.Kinds() {
			settleLater(t, h, messaging.NewMessage(e, 1, nil))
			all++
		}
	}
	runParked(t, box)
	dead := func() int { return column[int](t, w.db.DB, "SELECT count(*) FROM inbox_dead")[0] }
	await.True(t, func() bool { return dead() == all }, "all are dead letters")
	require.Equal(t, all, v.Tries(4))
	require.Zero(t, v.Tries(5))
	v.Succeed()
	replayed, err := w.operator().Dead().ReplayAll(t.Context(), operator.DeadFilter{}, ann, nil)
	require.NoError(t, err)
	require.EqualValues(t, all, replayed)
	await.True(t, func() bool { return v.Succeeded() == all }, "all are replayed")
	v.RequireSame(t)
}

// A bulk writer sees the same message in a batch, alone, and from the parking table.
func TestMessageOfABatchIsWhatItIsAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.hasty(func(c *inbox.Config) { c.CrashGuard = -1 })
	var mu sync.Mutex
	seen := map[string][]string{}
	failing := true
	h := box.WrapBatch("billing", func(ctx context.Context, msgs []*messaging.Message) error {
		mu.Lock()
		defer mu.Unlock()
		for _, m := range msgs {
			seen[m.ID] = append(seen[m.ID], eachtry.View(messaging.NewContext(ctx, m), m))
		}
		if failing {
			return errNotNow
		}
		return nil
	})
	var msgs []*messaging.Message
	for kind, e := range eachtry.Kinds() {
		e.ID, e.AggregateID = kind, "" // each in an order of its own, or in none
		e.Delivery.OrderingKey, e.RoutingKey = kind+e.Delivery.OrderingKey, ""
		msgs = append(msgs, messaging.NewMessage(e, 1, nil))
	}
	require.Error(t, h.HandleBatch(t.Context(), msgs))
	settle := func(m *messaging.Message) { settleLater(t, h.(messaging.Handler), m) }
	for _, m := range msgs {
		settle(m)
	}
	mu.Lock()
	failing = false
	mu.Unlock()
	runParked(t, box)
	await.True(t, func() bool { return len(w.parked()) == 0 }, "no message is parked")
	for kind, tries := range seen {
		require.GreaterOrEqual(t, len(tries), 3, kind)
		for _, again := range tries[1:] {
			require.Equal(t, tries[0], again, kind)
		}
	}
}

// The tenant that a handler of a message without one works for is that of its retries, also for what it emits.
func TestMessageWithoutTenantIsOfTheDefaultOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		require.Equal(t, inbox.DefaultTenantID, m.TenantID)
		require.Equal(t, inbox.DefaultTenantID, event.TenantFrom(ctx))
		_, within := uow.FromContext(ctx)
		require.True(t, within)
		return nil
	}))
	m := messaging.NewMessage(event.Envelope{ID: "1", Type: "t", Source: "s", Topic: "order"}, 1, nil)
	require.NoError(t, h.Handle(t.Context(), m))
	require.Empty(t, m.TenantID, "the caller's message is as it was")
}
