package inbox_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/inbox/parked"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/presence"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
)

// failed parks an ordered message for an hour, and returns its key.
func (w *world) failed(id, aggregate string) operator.MessageRef {
	w.t.Helper()
	h := w.box.Wrap("billing", messaging.HandlerFunc(func(context.Context, *messaging.Message) error {
		return messaging.RetryAfter(time.Hour, errNotNow)
	}))
	require.NoError(w.t, h.Handle(w.t.Context(), ordered(id, aggregate)))
	for _, p := range w.listParked(parked.Filter{}, 100) {
		if p.Envelope.ID == id {
			return p.Key
		}
	}
	require.Fail(w.t, "it is not parked")
	return operator.MessageRef{}
}

// listParked reads all pages.
func (w *world) listParked(filter parked.Filter, limit int) (list []parked.Message) {
	w.t.Helper()
	var after *parked.Message
	for {
		page, err := w.box.Parked().List(w.t.Context(), filter, after, limit)
		require.NoError(w.t, err)
		require.LessOrEqual(w.t, len(page), limit)
		if len(page) == 0 {
			return list
		}
		list, after = append(list, page...), &page[len(page)-1]
	}
}

func TestParkedMessagesAreFilteredAndPaged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for key := range 4 {
		w.failed(fmt.Sprint(key, "/0"), fmt.Sprint("o", key))
		h := w.box.Wrap("billing", messaging.HandlerFunc(w.effect))
		for n := 1; n < 4; n++ {
			require.NoError(t, h.Handle(t.Context(), ordered(fmt.Sprint(key, "/", n), fmt.Sprint("o", key))))
		}
	}
	w.kill(w.box, "shipping", ordered("dead", "o1"), ordered("behind", "o1"))
	for name, c := range map[string]struct {
		filter parked.Filter
		want   int
	}{
		"all":            {parked.Filter{}, 17},
		"consumer":       {parked.Filter{Consumer: "billing"}, 16},
		"state":          {parked.Filter{State: parked.KeyDead}, 1},
		"key":            {parked.Filter{Consumer: "billing", OrderingKey: "t1|order|o1"}, 4},
		"first of each":  {parked.Filter{FirstOnly: true}, 5},
		"first, failed":  {parked.Filter{FirstOnly: true, State: parked.KeyFailed}, 4},
		"another tenant": {parked.Filter{TenantID: "t2"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			for _, limit := range []int{1, 3, 100} {
				seen, last := map[operator.MessageRef]bool{}, map[int64]string{}
				for _, p := range w.listParked(c.filter, limit) {
					require.False(t, seen[p.Key])
					seen[p.Key] = true
					require.Greater(t, p.Envelope.ID, last[p.KeyLock], "in order")
					last[p.KeyLock] = p.Envelope.ID
				}
				require.Len(t, seen, c.want, "pages of %d", limit)
			}
		})
	}

	list := w.listParked(parked.Filter{Consumer: "billing", OrderingKey: "t1|order|o2"}, 100)
	require.WithinDuration(t, time.Now(), list[0].ParkedAt, time.Minute)
	require.WithinDuration(t, time.Now().Add(time.Hour), list[0].DueAt, time.Minute)
	env := ordered("2/0", "o2").Envelope
	env.Payload, env.Metadata, env.SchemaVersion = nil, event.Metadata{}, 1
	require.Equal(t, parked.Message{
		Key: list[0].Key, Envelope: env, OrderingKey: "t1|order|o2", State: parked.KeyFailed, First: true, Attempts: 1, Error: list[0].Error,
		Fingerprint: store.Fingerprint("billing", "order.placed", "not now"),
		ParkedAt:    list[0].ParkedAt, DueAt: list[0].DueAt, KeyLock: list[0].KeyLock, Seq: list[0].Seq,
		FailedBy: presence.Signature(), FailingSince: list[0].FailingSince,
	}, list[0])
	require.WithinDuration(t, list[0].ParkedAt, list[0].FailingSince, time.Minute)
	require.Empty(t, list[1].FailedBy, "it was not tried")
	require.Contains(t, list[0].Error, "not now")
	require.False(t, list[1].First)
	require.Zero(t, list[1].Attempts)
	behind := w.listParked(parked.Filter{State: parked.KeyDead}, 100)[0]
	require.False(t, behind.First, "the dead letter is")
	require.Zero(t, behind.DueAt)

	_, err := w.box.Parked().List(t.Context(), parked.Filter{State: "RUNNING", Consumer: "\x00"}, nil, 0)
	require.ErrorContains(t, err, "parked.Filter.State")
	require.ErrorContains(t, err, "parked.Filter.Consumer")
}

func TestRetryNow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.failed("a", "o1")
	box := w.hasty(nil)
	h := box.Wrap("billing", messaging.HandlerFunc(w.effect))
	require.NoError(t, h.Handle(t.Context(), ordered("b", "o1")))
	second := w.listParked(parked.Filter{}, 100)[1].Key
	require.ErrorIs(t, w.operator().Parked().RetryNow(t.Context(), second, ann), parked.ErrNotParked)
	dead := w.kill(w.box, "shipping", ordered("a", "o1"))[0]
	require.ErrorIs(t, w.operator().Parked().RetryNow(t.Context(), dead, ann), parked.ErrNotParked)
	box.Wrap("billing", messaging.HandlerFunc(w.effect))
	runParked(t, box)
	require.NoError(t, w.operator().Parked().RetryNow(t.Context(), key, ann))
	w.awaitEffects(2)
	require.Equal(t, []string{"a", "b"}, w.effects())
	require.ErrorIs(t, w.operator().Parked().RetryNow(t.Context(), key, ann), parked.ErrNotParked)
	require.Equal(t, 1, w.count("oncebox_audit WHERE action = 'retry' AND message_id = 'a'"))
}

func TestGiveUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.failed("a", "o1")
	box := w.hasty(nil)
	h := box.Wrap("billing", messaging.HandlerFunc(w.effect))
	require.NoError(t, h.Handle(t.Context(), ordered("b", "o1")))
	second := w.listParked(parked.Filter{}, 100)[1].Key
	require.ErrorIs(t, w.operator().Parked().GiveUp(t.Context(), second, ann), parked.ErrNotParked)
	seq := column[int64](t, w.db.DB, "SELECT min(seq) FROM inbox_parked")
	require.NoError(t, w.operator().Parked().GiveUp(t.Context(), key, ann))
	require.ErrorIs(t, w.operator().Parked().GiveUp(t.Context(), key, ann), parked.ErrNotParked)
	d := w.dead()[0]
	require.Equal(t, key, d.Key)
	require.Contains(t, d.Error, "not now")
	require.Equal(t, ordered("a", "o1").Payload, d.Envelope.Payload)
	require.True(t, d.Holds)
	require.Equal(t, seq, column[int64](t, w.db.DB, "SELECT seq FROM inbox_dead"))
	require.Equal(t, []string{"DEAD"}, w.keys())
	runParked(t, box)
	require.NoError(t, w.operator().Dead().Discard(t.Context(), key, ann))
	w.awaitEffects(1)
	require.Equal(t, []string{"b"}, w.effects())
	require.Equal(t, []string{"give_up", "discard"}, column[string](t, w.db.DB, "SELECT action FROM oncebox_audit ORDER BY id"))
}

func TestGiveUpLetsPass(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.failed("a", "o1")
	alone := w.box.Wrap("billing", messaging.HandlerFunc(func(context.Context, *messaging.Message) error {
		return messaging.RetryAfter(time.Hour, errNotNow)
	}))
	require.NoError(t, alone.Handle(t.Context(), unordered("u")))
	box := w.hasty(nil)
	h := box.Wrap("billing", messaging.HandlerFunc(w.effect))
	require.NoError(t, h.Handle(t.Context(), ordered("b", "o1")))
	runParked(t, box)
	require.NoError(t, newBox(w.units, &inbox.Config{ContinueAfterDead: true}).Parked().GiveUp(t.Context(), key, ann))
	w.awaitUnparked("b")
	key.MessageKey, key.Source = w.listParked(parked.Filter{}, 100)[0].Key.MessageKey, "clock"
	require.NoError(t, w.operator().Parked().GiveUp(t.Context(), key, ann))
	require.Empty(t, w.keys(), "nothing is behind a message without order")
	require.Len(t, w.dead(), 2)
}

// awaitUnparked returns when the message has left the table of parked ones.
func (w *world) awaitUnparked(id string) {
	w.t.Helper()
	await.True(w.t, func() bool { return w.count(fmt.Sprintf("inbox_parked WHERE message_id = '%s'", id)) == 0 }, "message %s is parked no more", id)
}

// To park behind a message and to give it up take turns, as do all changes of a key.
func TestGiveUpWaitsForWhatParksBehindIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.failed("a", "o1")
	commit := w.arriving(w.box.Wrap("billing", messaging.HandlerFunc(w.effect)), ordered("b", "o1"))
	gaveUp := make(chan error, 1)
	go func() { gaveUp <- w.operator().Parked().GiveUp(t.Context(), key, ann) }()
	w.awaitWaiters(1)
	commit()
	require.NoError(t, <-gaveUp)
	require.Equal(t, []string{"DEAD"}, w.keys())
	require.Equal(t, []string{"b"}, w.parked())
}

// A handler that is just trying the message decides. Without its lock the message would be handled and dead as well.
func TestGiveUpWaitsForTheHandler(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		w := newWorld(t)
		key := w.failed("a", "o1")
		box := w.hasty(nil)
		began, end := make(chan struct{}), make(chan struct{})
		letEnd := sync.OnceFunc(func() { close(end) })
		defer letEnd()
		box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
			close(began)
			<-end
			if fails {
				return messaging.RetryAfter(time.Hour, errNotNow)
			}
			return w.effect(ctx, m)
		}))
		runParked(t, box)
		require.NoError(t, w.operator().Parked().RetryNow(t.Context(), key, ann))
		<-began
		require.ErrorIs(t, w.operator().Parked().RetryNow(t.Context(), key, ann), parked.ErrNotParked, "it is running")
		gaveUp := make(chan error, 1)
		go func() { gaveUp <- w.operator().Parked().GiveUp(t.Context(), key, ann) }()
		w.awaitWaiters(1)
		letEnd()
		err := <-gaveUp
		if fails {
			require.NoError(t, err)
			require.Len(t, w.dead(), 1)
			require.Equal(t, []string{"DEAD"}, w.keys())
			continue
		}
		require.ErrorIs(t, err, parked.ErrNotParked)
		require.Equal(t, []string{"a"}, w.effects())
		require.Empty(t, w.dead())
		require.Empty(t, w.keys())
	}
}
