package inbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/parked"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

// of is a message of a topic and a key.
func of(topic, id, key string) *messaging.Message {
	m := ordered(id, key)
	m.Topic = topic
	return m
}

// untried returns the state of a topic's keys in the table. It changes when a process takes one.
func (w *world) untried(topic string) []string {
	w.t.Helper()
	return column[string](w.t, w.db.DB, "SELECT key_lock || ' ' || xmin FROM inbox_key WHERE topic = ? ORDER BY key_lock", topic)
}

// onTopics are the ways in which a consumer handles a topic.
func onTopics(topic string) map[string]func(*inbox.Inbox, messaging.Handler) messaging.Handler {
	return map[string]func(*inbox.Inbox, messaging.Handler) messaging.Handler{
		"plain": func(b *inbox.Inbox, h messaging.Handler) messaging.Handler {
			return b.Wrap("billing", h, inbox.OfTopic(topic))
		},
		"leased": func(b *inbox.Inbox, h messaging.Handler) messaging.Handler {
			return b.WrapLeased("billing", h, inbox.OfTopic(topic))
		},
		"stored first": func(b *inbox.Inbox, h messaging.Handler) messaging.Handler {
			return b.Wrap("billing", h, inbox.OfTopic(topic), inbox.StoreFirst())
		},
		"batch": func(b *inbox.Inbox, h messaging.Handler) messaging.Handler {
			return b.WrapBatch("billing", func(ctx context.Context, msgs []*messaging.Message) error {
				for _, m := range msgs {
					if err := h.Handle(ctx, m); err != nil {
						return err
					}
				}
				return nil
			}, inbox.OfTopic(topic))
		},
	}
}

// A process of the consumer that has no handler for a topic leaves its parked messages to those that have one, however long they are overdue, and
// works on its own.
func TestProcessTakesOnlyKeysOfTheTopicsThatItHandles(t *testing.T) {
	t.Parallel()
	for name, wrap := range onTopics("a") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			storing := w.hasty(nil).Wrap("billing", messaging.HandlerFunc(w.effect), inbox.OfTopic("a"), inbox.StoreFirst())
			for n := range 3 {
				require.NoError(t, storing.Handle(t.Context(), of("a", fmt.Sprint("a", n), fmt.Sprint("a", n))))
			}
			before := w.untried("a")
			require.Len(t, before, 3)

			other := w.hasty(nil)
			b := other.Wrap("billing", messaging.HandlerFunc(w.effect), inbox.OfTopic("b"), inbox.StoreFirst())
			other.Wrap("billing", messaging.HandlerFunc(w.effect), inbox.OfTopic("c"))
			runParked(t, other)
			const own = 20
			for n := range own {
				require.NoError(t, b.Handle(t.Context(), of("b", fmt.Sprint("b", n), fmt.Sprint("b", n))))
			}
			await.True(t, func() bool { return len(w.effects()) == own }, "the other process handles its own")
			require.Equal(t, before, w.untried("a"), "and has taken no key of a")

			box := w.hasty(nil)
			wrap(box, messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
				return w.units.Do(ctx, func(ctx context.Context, _ *uow.Unit) error { return w.effect(ctx, m) })
			}))
			runParked(t, box)
			w.awaitEffects(own + 3)
		})
	}
}

// A key goes from one process to the other with the topic of its first message, whatever puts that there.
func TestKeyWithSeveralTopicsGoesFromOneProcessToTheOther(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]func(w *world, a, b messaging.Handler){
		"stored": func(w *world, a, b messaging.Handler) {
			require.NoError(w.t, a.Handle(w.t.Context(), of("a", "1", "k")))
			require.NoError(w.t, b.Handle(w.t.Context(), of("b", "2", "k")))
		},
		"a dead letter is replayed": func(w *world, a, b messaging.Handler) {
			key := w.kill(w.hasty(nil), "billing", of("a", "1", "k"))[0]
			require.NoError(w.t, b.Handle(w.t.Context(), of("b", "2", "k")))
			require.NoError(w.t, w.operator().Dead().Replay(w.t.Context(), key, ann))
		},
		"a dead letter that held nothing is replayed": func(w *world, a, b messaging.Handler) {
			on := newBox(w.units, &inbox.Config{ContinueAfterDead: true})
			key := w.kill(on, "billing", of("a", "1", "k"))[0]
			require.NoError(w.t, b.Handle(w.t.Context(), of("b", "2", "k")))
			require.NoError(w.t, w.operator().Dead().Replay(w.t.Context(), key, ann))
		},
		"a dead letter before it is discarded": func(w *world, a, b messaging.Handler) {
			key := w.kill(w.hasty(nil), "billing", of("b", "0", "k"))[0]
			require.NoError(w.t, a.Handle(w.t.Context(), of("a", "1", "k")))
			require.NoError(w.t, b.Handle(w.t.Context(), of("b", "2", "k")))
			require.NoError(w.t, w.operator().Dead().Discard(w.t.Context(), key, ann))
		},
		"a message before it is given up": func(w *world, a, b messaging.Handler) {
			require.NoError(w.t, b.Handle(w.t.Context(), of("b", "0", "k")))
			require.NoError(w.t, a.Handle(w.t.Context(), of("a", "1", "k")))
			require.NoError(w.t, b.Handle(w.t.Context(), of("b", "2", "k")))
			list := w.listParked(parked.Filter{FirstOnly: true}, 1)
			passing := newBox(w.units, &inbox.Config{ContinueAfterDead: true})
			require.NoError(w.t, passing.Parked().GiveUp(w.t.Context(), list[0].Key, ann))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			store := w.hasty(nil)
			a := store.Wrap("billing", messaging.HandlerFunc(w.effect), inbox.OfTopic("a"), inbox.StoreFirst())
			b := store.Wrap("billing", messaging.HandlerFunc(w.effect), inbox.OfTopic("b"), inbox.StoreFirst())
			first(w, a, b)
			require.Equal(t, []string{"a"}, column[string](t, w.db.DB, "SELECT topic FROM inbox_key"))
			for _, topic := range []string{"b", "a"} {
				box := w.hasty(nil)
				box.Wrap("billing", messaging.HandlerFunc(w.effect), inbox.OfTopic(topic))
				runParked(t, box)
			}
			w.awaitEffects(2)
			require.Equal(t, []string{"1", "2"}, w.effects())
		})
	}
}

// A key has the topic of its first message at every moment, so that it does not matter who dies when.
func TestKeyHasTheTopicOfItsFirstMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.hasty(nil)
	a := box.Wrap("billing", messaging.HandlerFunc(w.effect), inbox.OfTopic("a"), inbox.StoreFirst())
	end := make(chan struct{})
	goOn := sync.OnceFunc(func() { close(end) })
	b := box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		<-end
		return w.effect(ctx, m)
	}), inbox.OfTopic("b"), inbox.StoreFirst())
	require.NoError(t, a.Handle(t.Context(), of("a", "1", "k")))
	require.NoError(t, b.Handle(t.Context(), of("b", "2", "k")))
	topic := func() string { return column[string](t, w.db.DB, "SELECT topic FROM inbox_key")[0] }
	require.Equal(t, "a", topic())
	runParked(t, box)
	t.Cleanup(goOn)
	await.True(t, func() bool { return len(w.effects()) == 1 }, "the first is handled")
	require.Equal(t, "b", topic(), "while the second is being handled")
	goOn()
	w.awaitEffects(2)
}

// A key of which nothing is noted is looked at by anybody, who notes it for those that can handle it.
func TestKeyWithoutTopicIsLookedAt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	store := w.hasty(nil).Wrap("billing", messaging.HandlerFunc(w.effect), inbox.OfTopic("a"), inbox.StoreFirst())
	require.NoError(t, store.Handle(t.Context(), of("a", "1", "k")))
	w.exec("UPDATE inbox_key SET topic = ''")
	other := w.hasty(nil)
	other.Wrap("billing", messaging.HandlerFunc(w.effect), inbox.OfTopic("b"))
	runParked(t, other)
	await.True(t, func() bool { return w.count("inbox_key WHERE topic = 'a' AND owner IS NULL") == 1 }, "its topic is noted")
	box := w.hasty(nil)
	box.Wrap("billing", messaging.HandlerFunc(w.effect), inbox.OfTopic("a"))
	runParked(t, box)
	w.awaitEffects(1)
}

// However many keys wait for processes that handle another topic, none of them is read by a process that takes keys.
func TestClaimReadsOnlyKeysOfItsTopics(t *testing.T) {
	w := newWorld(t)
	w.exec(`INSERT INTO inbox_key (consumer, key_lock, tenant_id, state, due_at, topic)
		SELECT 'billing', i, 't1', 'FAILED', now() - interval '1 day', 'a' FROM generate_series(1, 30000) i`)
	w.exec(`INSERT INTO inbox_key (consumer, key_lock, tenant_id, state, due_at, topic)
		SELECT 'billing', -i, 't1', 'FAILED', now(), 'b' FROM generate_series(1, 100) i`)
	w.exec("VACUUM ANALYZE inbox_key")
	plan, err := w.box.ExplainClaim(t.Context(), "billing", []string{"", "b"})
	require.NoError(t, err)
	require.Contains(t, plan, "Index Scan using inbox_key_due")
	require.NotContains(t, plan, "Seq Scan on inbox_key")
	require.NotContains(t, plan, "Rows Removed by Filter: 30000")
	for _, line := range regexp.MustCompile(`rows=(\d+)`).FindAllStringSubmatch(plan, -1) {
		n, err := strconv.Atoi(line[1])
		require.NoError(t, err)
		require.Less(t, n, 200, plan)
	}
	require.Equal(t, 4, w.count("inbox_key WHERE owner IS NOT NULL AND topic = 'b'"), "the statement was run: %s", plan)
}

// A topic that no process handles is shown to operators, and logged by the processes that run the consumer: once a minute, and not for each key.
func TestTopicThatNoProcessHandlesIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	storing := w.hasty(nil).Wrap("billing", messaging.HandlerFunc(w.effect), inbox.OfTopic("a"), inbox.StoreFirst())
	for n := range 10 {
		require.NoError(t, storing.Handle(t.Context(), of("a", fmt.Sprint("a", n), fmt.Sprint("a", n))))
	}
	w.exec("UPDATE inbox_key SET due_at = due_at - interval '4 minutes'")
	var log lines
	box := inbox.New(w.units, &inbox.Config{PollInterval: 10 * time.Millisecond, Telemetry: telemetry.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}})
	b := box.Wrap("billing", messaging.HandlerFunc(w.effect), inbox.OfTopic("b"), inbox.StoreFirst())
	stop := runParked(t, box)
	require.NoError(t, b.Handle(t.Context(), of("b", "b", "b")))
	await.True(t, func() bool { return len(w.effects()) == 1 }, "it handles its own")
	absent, err := w.box.State().AbsentTopics(t.Context())
	require.NoError(t, err)
	require.Len(t, absent, 1)
	require.Equal(t, "billing a", absent[0].Consumer+" "+absent[0].Topic)
	require.Equal(t, 1, strings.Count(log.String(), "level=WARN"), "%s", log.String())
	require.Contains(t, log.String(), "no process handles")
	require.Contains(t, log.String(), "consumer=billing topic=a")
	stop()

	next := w.hasty(nil)
	next.Wrap("billing", messaging.HandlerFunc(w.effect), inbox.OfTopic("a"))
	stop = runParked(t, next)
	w.awaitEffects(11)
	absent, err = w.box.State().AbsentTopics(t.Context())
	require.NoError(t, err)
	require.Empty(t, absent)
	stop()
	w.exec("UPDATE inbox_consumer SET beat_at = beat_at - interval '4 minutes'")
	require.NoError(t, w.box.Consumers().Forget(t.Context(), "billing", ann))
	require.Zero(t, w.count("inbox_topic"))
}
