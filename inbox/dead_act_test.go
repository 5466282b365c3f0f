package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/parked"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/nightly"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/uow"
)

// ann is an operator.
var ann = operator.By{Actor: "ann", Reason: "tried it"}

// operator is an inbox without handlers, as in a program of its own.
func (w *world) operator() *inbox.Inbox { return newBox(w.units, nil) }

// kill makes dead letters of the messages and returns their keys.
func (w *world) kill(box *inbox.Inbox, consumer string, msgs ...*messaging.Message) (keys []operator.MessageRef) {
	w.t.Helper()
	h := box.Wrap(consumer, gaveUp())
	for _, m := range msgs {
		require.NoError(w.t, h.Handle(w.t.Context(), m))
	}
	for _, m := range msgs {
		for _, d := range w.dead() {
			if d.Envelope.ID == m.ID && d.Key.Consumer == consumer {
				keys = append(keys, d.Key)
			}
		}
	}
	return keys
}

func (w *world) count(from string) int {
	w.t.Helper()
	return column[int](w.t, w.db.DB, "SELECT count(*) FROM "+from)[0]
}

// The operator's program knows no handler: the service finds the message where it stood, before those behind it.
func TestReplayedMessageIsHandledByTheService(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := ordered(newID(t), "o1")
	m.Payload = []byte("\x00\xff")
	key := w.kill(w.box, "billing", m)[0]
	box := w.hasty(nil)
	var tries []int
	h := box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, got *messaging.Message) error {
		if got.ID == m.ID {
			tries = append(tries, got.Attempt)
			require.Equal(t, m.Payload, got.Payload)
			require.Equal(t, m.ID, event.MetadataFrom(ctx)[event.CausationID])
		}
		return w.effect(ctx, got)
	}))
	require.NoError(t, h.Handle(t.Context(), ordered("b", "o1")))
	require.NoError(t, h.Handle(t.Context(), ordered("c", "o1")))
	stop := runParked(t, box)
	require.NoError(t, w.operator().Dead().Replay(t.Context(), key, ann))
	w.awaitEffects(3)
	stop()
	require.Equal(t, []string{m.ID, "b", "c"}, w.effects())
	require.Equal(t, []int{1}, tries, "it has all its attempts back")
	require.Empty(t, w.dead())
	require.Empty(t, w.keys())
	require.ErrorIs(t, w.operator().Dead().Replay(t.Context(), key, ann), operator.ErrNotDead)
	require.NoError(t, h.Handle(t.Context(), m), "a copy")
	require.Len(t, w.effects(), 3)
}

func TestReplayedMessageThatFailsAgainIsDeadAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.hasty(nil)
	key := w.kill(box, "billing", ordered("a", "o1"), ordered("b", "o1"))[0]
	seq := column[int64](t, w.db.DB, "SELECT seq FROM inbox_dead")
	runParked(t, box)
	for n := 1; n <= 2; n++ {
		require.NoError(t, w.operator().Dead().Replay(t.Context(), key, ann))
		await.True(t, func() bool { return len(w.dead()) == 1 }, "the message is dead again")
		require.Equal(t, seq, column[int64](t, w.db.DB, "SELECT seq FROM inbox_dead"), "at its place")
		require.Equal(t, []string{"DEAD"}, w.keys())
		require.Equal(t, []string{"b"}, w.parked())
		require.True(t, w.dead()[0].Holds)
	}
}

func TestDiscardLetsWhatIsBehindRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	keys := w.kill(w.box, "billing", ordered("a", "o1"), ordered("b", "o1"), ordered("alone", "o2"), unordered("free"))
	keys = append(keys, w.kill(w.box, "shipping", ordered("a", "o1"))...)
	box := w.hasty(nil)
	h := box.Wrap("billing", messaging.HandlerFunc(w.effect))
	runParked(t, box)
	for _, key := range keys {
		require.NoError(t, w.operator().Dead().Discard(t.Context(), key, ann))
		require.ErrorIs(t, w.operator().Dead().Discard(t.Context(), key, ann), operator.ErrNotDead)
	}
	w.awaitEffects(1)
	require.Equal(t, []string{"b"}, w.effects())
	require.Empty(t, w.dead())
	require.Empty(t, w.keys())
	require.NoError(t, h.Handle(t.Context(), ordered("c", "o1")))
	require.NoError(t, h.Handle(t.Context(), ordered("d", "o2")))
	require.NoError(t, h.Handle(t.Context(), ordered("a", "o1")), "a copy of what was discarded")
	require.Equal(t, []string{"b", "c", "d"}, w.effects())
}

// A message parks behind a dead letter while that is discarded. If the key were freed between its look and its COMMIT,
// nothing would ever run it.
func TestMessageIsNotStrandedByADiscard(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.kill(w.box, "billing", ordered("a", "o1"))[0]
	box := w.hasty(nil)
	commit := w.arriving(box.Wrap("billing", messaging.HandlerFunc(w.effect)), ordered("b", "o1"))
	discarded := make(chan error, 1)
	go func() { discarded <- w.operator().Dead().Discard(t.Context(), key, ann) }()
	w.awaitWaiters(1)
	commit()
	require.NoError(t, <-discarded)
	require.Equal(t, []string{"WAITING"}, w.keys())
	runParked(t, box)
	w.awaitEffects(1)
	require.Empty(t, w.keys())
}

// arriving makes h handle m, in a transaction that stays open until the returned function is called.
func (w *world) arriving(h messaging.Handler, m *messaging.Message) (commit func()) {
	w.t.Helper()
	handled, end, committed := make(chan error, 1), make(chan struct{}), make(chan error, 1)
	go func() {
		committed <- w.units.Do(context.WithoutCancel(w.t.Context()), func(ctx context.Context, _ *uow.Unit) error {
			err := h.Handle(ctx, m)
			handled <- err
			<-end
			return err
		})
	}()
	commit = sync.OnceFunc(func() {
		close(end)
		if err := <-committed; err != nil { // FailNow within OnceFunc would be a panic
			w.t.Error("the transaction of the handler: ", err)
		}
	})
	w.t.Cleanup(commit)
	require.NoError(w.t, <-handled)
	return commit
}

// Dead letters let pass, so the key may be busy when one of it is replayed: it waits for its turn, and what comes later waits
// for it.
func TestReplayWaitsForTheHandlerOfItsKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.hasty(func(c *inbox.Config) { c.ContinueAfterDead = true })
	key := w.kill(box, "billing", ordered("a", "o1"))[0]
	require.Empty(t, w.keys())
	h := box.Wrap("billing", messaging.HandlerFunc(w.effect))
	commit := w.arriving(h, ordered("b", "o1"))
	replayed := make(chan error, 1)
	go func() { replayed <- w.operator().Dead().Replay(t.Context(), key, ann) }()
	w.awaitWaiters(1)
	commit()
	require.NoError(t, <-replayed)
	require.NoError(t, h.Handle(t.Context(), ordered("c", "o1")))
	runParked(t, box)
	w.awaitEffects(3)
	require.Equal(t, []string{"b", "a", "c"}, w.effects())
	require.Empty(t, w.keys())
}

// The key of a dead letter that holds nothing does not flow for another reason: nothing of that changes.
func TestReplayLeavesAFailedKeyAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.hasty(func(c *inbox.Config) { c.ContinueAfterDead = true })
	key := w.kill(box, "billing", ordered("a", "o1"))[0]
	failing := box.Wrap("billing", messaging.HandlerFunc(func(context.Context, *messaging.Message) error {
		return messaging.RetryAfter(time.Hour, errNotNow)
	}))
	require.NoError(t, failing.Handle(t.Context(), ordered("b", "o1")))
	before := column[string](t, w.db.DB, "SELECT inbox_key::text FROM inbox_key")
	require.NoError(t, w.operator().Dead().Replay(t.Context(), key, ann))
	require.Equal(t, before, column[string](t, w.db.DB, "SELECT inbox_key::text FROM inbox_key"))
	require.Equal(t, []string{"a", "b"}, w.parked(), "at its place")

	box.Wrap("billing", messaging.HandlerFunc(w.effect))
	first, err := w.operator().Parked().List(t.Context(), parked.Filter{FirstOnly: true}, nil, 0)
	require.NoError(t, err)
	require.NoError(t, w.operator().Parked().RetryNow(t.Context(), first[0].Key, ann))
	runParked(t, box)
	w.awaitEffects(2)
	require.Equal(t, []string{"a", "b"}, w.effects())
}

// One dead letter of a key holds it, another one, which died while they let pass, comes before or after it.
func TestReplayWaitsForTheDeadLetterThatHolds(t *testing.T) {
	t.Parallel()
	for _, discard := range []bool{false, true} {
		w := newWorld(t)
		passing := w.kill(newBox(w.units, &inbox.Config{ContinueAfterDead: true}), "billing", ordered("a", "o1"))[0]
		holding := w.kill(w.box, "billing", ordered("b", "o1"))[0]
		box := w.hasty(nil)
		h := box.Wrap("billing", messaging.HandlerFunc(w.effect))
		require.NoError(t, h.Handle(t.Context(), ordered("c", "o1")))
		require.NoError(t, w.operator().Dead().Replay(t.Context(), passing, ann))
		require.Equal(t, []string{"DEAD"}, w.keys())
		want := []string{"a", "b", "c"}
		if discard {
			require.NoError(t, w.operator().Dead().Discard(t.Context(), holding, ann))
			want = []string{"a", "c"}
		} else {
			require.NoError(t, w.operator().Dead().Replay(t.Context(), holding, ann))
		}
		require.Equal(t, []string{"WAITING"}, w.keys())
		runParked(t, box)
		w.awaitEffects(len(want))
		require.Equal(t, want, w.effects())
		require.Empty(t, w.keys())
	}
}

// The discard of a dead letter that holds nothing does not free the key if another dead letter holds it.
func TestDiscardOfAnotherDeadLetterFreesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	passing := w.kill(newBox(w.units, &inbox.Config{ContinueAfterDead: true}), "billing", ordered("a", "o1"))[0]
	w.kill(w.box, "billing", ordered("b", "o1"))
	require.NoError(t, w.operator().Dead().Discard(t.Context(), passing, ann))
	require.Equal(t, []string{"DEAD"}, w.keys())
}

// The entry has expired. A copy that comes between the replay and its turn is a copy still.
func TestReplayedMessageMeetsItsCopy(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]*messaging.Message{"ordered": ordered("a", "o1"), "unordered": unordered("a")} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			key := w.kill(w.box, "billing", m)[0]
			w.exec("DELETE FROM inbox")
			require.NoError(t, w.operator().Dead().Replay(t.Context(), key, ann))
			box := w.hasty(nil)
			h := box.Wrap("billing", messaging.HandlerFunc(w.effect))
			require.NoError(t, h.Handle(t.Context(), m))
			require.Empty(t, w.effects())
			runParked(t, box)
			w.awaitEffects(1)
			require.NoError(t, h.Handle(t.Context(), m))
			require.Equal(t, []string{"a"}, w.effects())
		})
	}
}

// Names that cannot be stored are stored readable, under a key of their own.
func TestReplayOfAMessageWithInvalidNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := ordered("x\x00", "o\xff")
	m.TenantID, m.Source = "t\xff", "s\xff"
	require.NoError(t, w.box.Wrap("billing", gaveUp()).Handle(t.Context(), m))
	key := w.dead()[0].Key
	box := w.hasty(nil)
	box.Wrap("billing", gaveUp())
	stop := runParked(t, box)
	require.NoError(t, w.operator().Dead().Replay(t.Context(), key, ann))
	await.True(t, func() bool { return len(w.dead()) == 1 && len(w.keys()) == 0 }, "it is dead again, and no key waits for it")
	stop()
	require.False(t, w.dead()[0].Holds)

	box = w.hasty(nil)
	box.Wrap("billing", messaging.HandlerFunc(w.effect))
	runParked(t, box)
	require.NoError(t, w.operator().Dead().Replay(t.Context(), key, ann))
	w.awaitEffects(1)
	require.Equal(t, []string{"x\uFFFD"}, w.effects())
	require.Equal(t, 1, w.entries())
}

func TestReplayOfManyKeepsTheOrderOfEachKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	passing := w.hasty(func(c *inbox.Config) { c.ContinueAfterDead = true })
	h := passing.Wrap("billing", gaveUp())
	want := map[string][]string{}
	for n := range 5 {
		for _, key := range []string{"a", "b", "c"} {
			id := fmt.Sprint(key, n)
			require.NoError(t, h.Handle(t.Context(), ordered(id, key)))
			want[key] = append(want[key], id)
		}
	}
	require.NoError(t, passing.Wrap("other", gaveUp()).Handle(t.Context(), ordered("a0", "a")))
	w.exec("UPDATE inbox_dead SET died_at = now() - seq * interval '1 hour'") // the last one died first
	w.exec("UPDATE inbox SET processed_at = now() - interval '2 days'")
	var progress []int64
	n, err := w.operator().Dead().ReplayAll(t.Context(), operator.DeadFilter{Consumer: "billing"}, ann, &operator.Bulk{
		BatchSize: 6, Progress: func(done int64) { progress = append(progress, done) },
	})
	require.NoError(t, err)
	require.EqualValues(t, 15, n)
	require.Equal(t, []int64{6, 12, 15}, progress)
	require.Len(t, w.dead(), 1, "that of another consumer")
	require.Equal(t, 15, w.count("oncebox_audit WHERE actor = 'ann' AND action = 'replay' AND reason = 'tried it'"))
	passing.Wrap("billing", messaging.HandlerFunc(w.effect))
	runParked(t, passing)
	w.awaitEffects(15)
	got := map[string][]string{}
	for _, effect := range w.effects() {
		got[effect[:1]] = append(got[effect[:1]], effect)
	}
	require.Equal(t, want, got)
}

func TestDryRunOnlyCounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.kill(w.box, "billing", ordered("a", "o1"), unordered("u"))
	for _, act := range []func(context.Context, operator.DeadFilter, operator.By, *operator.Bulk) (int64, error){
		w.box.Dead().ReplayAll, w.box.Dead().DiscardAll,
	} {
		n, err := act(t.Context(), operator.DeadFilter{Type: "tick"}, ann, &operator.Bulk{DryRun: true})
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
	}
	require.Len(t, w.dead(), 2)
	require.Zero(t, w.count("oncebox_audit"))
}

// One in 10,000 seconds: after the first one the wait would be longer than the call may last.
func TestRateBoundsTheBatches(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.kill(w.box, "billing", ordered("a", "o1"), ordered("b", "o2"), unordered("u"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for _, act := range []func(context.Context, operator.DeadFilter, operator.By, *operator.Bulk) (int64, error){
		w.box.Dead().ReplayAll, w.box.Dead().DiscardAll,
	} {
		n, err := act(ctx, operator.DeadFilter{}, ann, &operator.Bulk{Rate: 1e-4})
		require.ErrorContains(t, err, "after 1: wait, for the rate")
		require.EqualValues(t, 1, n)
	}
	require.Len(t, w.dead(), 1)
	n, err := w.box.Dead().ReplayAll(ctx, operator.DeadFilter{}, ann, &operator.Bulk{Rate: 1e6})
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
}

// Letters that arrive while a replay runs, perhaps because of it, are not replayed by it: otherwise it might never end.
func TestReplayOfManyLeavesWhatDiesMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.hasty(nil)
	w.kill(box, "billing", ordered("a", "o1"), ordered("b", "o2"), ordered("c", "o3"))
	runParked(t, box)
	n, err := w.operator().Dead().ReplayAll(t.Context(), operator.DeadFilter{}, ann, &operator.Bulk{BatchSize: 1, Progress: func(done int64) {
		await.True(t, func() bool { return w.count("inbox_dead WHERE event_type <> 'late'") == 3 }, "it is dead again")
		w.exec(`INSERT INTO inbox_dead (message_key, consumer, tenant_id, source, message_id, event_type, topic, content_type, payload, error_message,
				key_lock, seq)
			VALUES (gen_random_uuid(), 'late', 't', 's', '1', 'late', 'order', 'text/plain', 'x', 'no', 9223372036854775000 + ?, 1)`, done)
		require.Less(t, done, int64(10))
	}})
	require.NoError(t, err)
	require.EqualValues(t, 3, n)
	require.Equal(t, 3, w.count("inbox_dead WHERE event_type = 'late'"))
}

// The entry of a dead letter that holds its key has expired, and its consumer keeps no order any more. When it dies again it
// still is what the key waits for.
func TestDeadLetterThatDiesAgainKeepsItsPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.kill(w.box, "billing", ordered("a", "o1"), ordered("b", "o1"))[0]
	w.exec("DELETE FROM inbox WHERE message_key = (SELECT message_key FROM inbox_dead)")
	place := column[string](t, w.db.DB, "SELECT key_lock || ' ' || seq FROM inbox_dead")
	require.NoError(t, w.box.Wrap("billing", gaveUp(), inbox.Unordered()).Handle(t.Context(), ordered("a", "o1")))
	require.Equal(t, place, column[string](t, w.db.DB, "SELECT key_lock || ' ' || seq FROM inbox_dead"))
	require.Equal(t, 2, w.dead()[0].Attempts)
	box := w.hasty(nil)
	box.Wrap("billing", messaging.HandlerFunc(w.effect))
	runParked(t, box)
	require.NoError(t, w.operator().Dead().Discard(t.Context(), key, ann))
	w.awaitEffects(1)
	require.Equal(t, []string{"b"}, w.effects())
	require.Empty(t, w.keys())
}

// deadRows makes n dead letters of a hundred keys. Only the first letter of each key holds its key.
const deadRows = `
INSERT INTO inbox_dead (message_key, consumer, tenant_id, source, message_id, event_type, topic, ordering_key, content_type, payload,
	error_message, key_lock, seq, holds, died_at)
SELECT gen_random_uuid(), 'billing', 't', 's', n::text, 'e', 'order', 'k' || n %% 100, 'text/plain', 'x', 'no', n %% 100, n, n < 100, now() - interval '1 day'
FROM generate_series(0, %d - 1) n`

func TestOperatorsShareTheWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(fmt.Sprintf(deadRows, 2000))
	w.exec(`INSERT INTO inbox_key (consumer, key_lock, tenant_id, ordering_key, state, due_at)
		SELECT 'billing', n, 't', 'k' || n, 'DEAD', 'infinity' FROM generate_series(0, 99) n`)
	acts := []func(context.Context, operator.DeadFilter, operator.By, *operator.Bulk) (int64, error){
		w.operator().Dead().ReplayAll, w.operator().Dead().DiscardAll, w.operator().Dead().ReplayAll, w.operator().Dead().DiscardAll,
	}
	moved, errs := make([]int64, len(acts)), make([]error, len(acts))
	var wg sync.WaitGroup
	for n, act := range acts {
		wg.Go(func() {
			moved[n], errs[n] = act(t.Context(), operator.DeadFilter{}, ann, &operator.Bulk{BatchSize: 50})
		})
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	require.EqualValues(t, 2000, moved[0]+moved[1]+moved[2]+moved[3], "each dead letter once")
	require.Equal(t, 2000, w.count("oncebox_audit"))
	require.Equal(t, int(moved[0]+moved[2]), w.count("inbox_parked"))
	require.Zero(t, w.count("inbox_dead"))
	require.Zero(t, w.count("inbox_key WHERE state = 'DEAD'"))
	require.Zero(t, w.count("inbox_parked p WHERE NOT EXISTS (SELECT FROM inbox_key k WHERE k.key_lock = p.key_lock)"), "none is stranded")
	require.Zero(t, w.count("inbox_key k WHERE NOT EXISTS (SELECT FROM inbox_parked p WHERE k.key_lock = p.key_lock)"), "no key stands still for nothing")
}

func TestTenThousandAreReplayed(t *testing.T) {
	many := nightly.N(2000, 10_000)
	w := newWorld(t)
	w.exec(fmt.Sprintf(deadRows, many))
	box := w.hasty(func(c *inbox.Config) { c.ParkedConcurrency = 16 })
	var mu sync.Mutex
	last, handled := map[string]int64{}, 0
	box.Wrap("billing", messaging.HandlerFunc(func(_ context.Context, m *messaging.Message) error {
		mu.Lock()
		defer mu.Unlock()
		var n int64
		_, err := fmt.Sscan(m.ID, &n)
		key := fmt.Sprint(n % 100)
		if n < last[key] {
			err = errors.Join(err, fmt.Errorf("%d came after %d", n, last[key]))
		}
		last[key], handled = n, handled+1
		return err
	}))
	stop := runParked(t, box)
	var progress []int64
	bulk := &operator.Bulk{Progress: func(done int64) { progress = append(progress, done) }}
	n, err := w.operator().Dead().ReplayAll(t.Context(), operator.DeadFilter{}, ann, bulk)
	require.NoError(t, err)
	require.EqualValues(t, many, n)
	require.Len(t, progress, many/100)
	require.True(t, slices.IsSorted(progress))
	await.True(t, func() bool { return w.count("inbox_parked") == 0 }, "all parked messages have been handled")
	stop() // what the last handler wrote is seen for sure only when it has ended
	require.Equal(t, many, handled, "each once, in order")
	require.Empty(t, w.keys())
}

func TestExpiredDeadLettersFreeTheirKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.kill(w.box, "billing", ordered("a", "o1"), ordered("b", "o1"), ordered("c", "o2"), ordered("d", "o3"))
	w.exec("UPDATE inbox_dead SET died_at = now() - interval '3 days' WHERE message_id <> 'd'")
	require.NoError(t, w.box.Clean(t.Context()))
	require.Len(t, w.dead(), 3, "they are kept for ever if nobody says otherwise")
	box := w.hasty(func(c *inbox.Config) { c.DeadRetention = 2 * day })
	require.NoError(t, box.Clean(t.Context()))
	require.Len(t, w.dead(), 1)
	box.Wrap("billing", messaging.HandlerFunc(w.effect))
	runParked(t, box)
	w.awaitEffects(1)
	require.Equal(t, []string{"b"}, w.effects())
	require.Equal(t, []string{"DEAD"}, w.keys(), "that of d")
	entries, err := w.box.Audit(t.Context(), operator.AuditFilter{}, nil, 0)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Equal(t, "dead for more than 2 days", entries[0].Reason)
	require.EqualValues(t, 2, entries[0].Events)
	require.Equal(t, "retention", entries[0].Actor)
	require.Equal(t, operator.Expire, entries[0].Action)
	require.Equal(t, []string{"billing", "t1", "", ""}, []string{entries[0].Consumer, entries[0].TenantID, entries[0].EventID, entries[0].Source})
}

func TestReplayRefusesWhatIsNoKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.ErrorContains(t, w.box.Dead().Replay(t.Context(), operator.MessageRef{MessageKey: "4711"}, ann), "not a UUID")
	require.ErrorIs(t, w.box.Dead().Replay(t.Context(), operator.MessageRef{MessageKey: newID(t), Consumer: "billing"}, ann), operator.ErrNotDead)
	_, err := w.box.Dead().Show(t.Context(), operator.MessageRef{MessageKey: newID(t), Consumer: "billing"})
	require.ErrorIs(t, err, operator.ErrNotDead)
	_, err = w.box.Dead().Show(t.Context(), operator.MessageRef{MessageKey: "4711"})
	require.ErrorContains(t, err, "not a UUID")
}

// The entry of a dead letter whose key flows has expired, its message came again, and was handled: nobody remembered that it is dead.
func TestReplayOfWhatWasHandledSinceDoesNothing(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]*messaging.Message{"ordered": ordered("a", "o1"), "unordered": unordered("a")} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			box := w.hasty(func(c *inbox.Config) { c.ContinueAfterDead = true })
			key := w.kill(box, "billing", m)[0]
			w.exec("DELETE FROM inbox")
			h := box.Wrap("billing", messaging.HandlerFunc(w.effect))
			require.NoError(t, h.Handle(t.Context(), m))
			require.Equal(t, []string{"a"}, w.effects())
			require.NoError(t, w.operator().Dead().Replay(t.Context(), key, ann))
			require.Empty(t, w.dead())
			require.Empty(t, w.parked())
			require.Empty(t, w.keys())
			require.NoError(t, h.Handle(t.Context(), m))
			require.Len(t, w.effects(), 1)
		})
	}
}

// The copy failed as well, or waits behind others: it is the dead letter that stands for it, and that was not handled.
func TestReplayOfWhatCameAgainAndWasNotHandled(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]*messaging.Message{"ordered": ordered("a", "o1"), "unordered": unordered("a"), "behind": ordered("a", "o2")} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			box := w.hasty(func(c *inbox.Config) { c.ContinueAfterDead, c.Retry.Tries, c.CrashGuard = true, 1, -1 })
			key := w.kill(box, "billing", m)[0]
			w.exec("DELETE FROM inbox")
			failing := box.Wrap("billing", messaging.HandlerFunc(func(context.Context, *messaging.Message) error { return errNotNow }))
			if name == "behind" {
				require.NoError(t, failing.Handle(t.Context(), ordered("first", "o2")))
			}
			require.NoError(t, failing.Handle(t.Context(), m))
			want := w.parked()
			require.Len(t, w.dead(), 1)
			require.Len(t, w.keys(), len(want), "a key without anything that waits flows")
			box.Wrap("billing", messaging.HandlerFunc(w.effect))
			require.NoError(t, w.operator().Dead().Replay(t.Context(), key, ann))
			runParked(t, box)
			w.awaitEffects(len(want) + 1)
			require.ElementsMatch(t, append(want, "a"), w.effects())
		})
	}
}
