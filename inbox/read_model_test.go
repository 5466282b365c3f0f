package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/readmodel"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
)

// kept is a history of messages, in portions of size. Its checkpoints are counts. at, if set, is called before each portion.
func kept(size int, at func(n int), msgs ...*messaging.Message) readmodel.History {
	return func(ctx context.Context, checkpoint string, to func(context.Context, []event.Envelope, string) error) error {
		from := 0
		if checkpoint != "" {
			var err error
			if from, err = strconv.Atoi(checkpoint); err != nil {
				return err
			}
		}
		for from < len(msgs) {
			if at != nil {
				at(from)
			}
			var events []event.Envelope
			for _, m := range msgs[from:min(from+size, len(msgs))] {
				events = append(events, m.Envelope)
			}
			from += len(events)
			if err := to(ctx, events, strconv.Itoa(from)); err != nil {
				return err
			}
		}
		return nil
	}
}

// clear empties the read model of these tests.
func (w *world) clear(ctx context.Context, u *uow.Unit) error {
	_, err := u.DB().ExecContext(ctx, "DELETE FROM effects")
	return err
}

func (w *world) status(p *readmodel.Model) readmodel.Status {
	w.t.Helper()
	s, err := p.Status(w.t.Context())
	require.NoError(w.t, err)
	return s
}

func handleAll(t *testing.T, h messaging.Handler, msgs ...*messaging.Message) {
	t.Helper()
	for _, m := range msgs {
		require.NoError(t, h.Handle(t.Context(), m))
	}
}

// some returns messages of one key.
func some(key string, from, to int) (msgs []*messaging.Message) {
	for n := from; n <= to; n++ {
		msgs = append(msgs, ordered(fmt.Sprintf("%s%d", key, n), key))
	}
	return msgs
}

// byKey are the messages of the keys a and b.
func byKey(ids []string) (of [2][]string) {
	for _, id := range ids {
		of[id[0]-'a'] = append(of[id[0]-'a'], id)
	}
	return of
}

func TestRebuildPutsLiveMessagesBehindWhatIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.hasty(nil)
	p := readmodel.New(box, "balances", messaging.HandlerFunc(w.effect))
	a, b := some("a", 1, 6), some("b", 1, 3)
	handleAll(t, p, a[:3]...)
	handleAll(t, p, b[:1]...)
	require.Equal(t, []string{"a1", "a2", "a3", "b1"}, w.effects())
	require.Equal(t, readmodel.Status{Name: "balances", Consumer: "balances", UpdatedAt: w.status(p).UpdatedAt}, w.status(p))

	runParked(t, box)
	var progress []readmodel.Progress
	require.NoError(t, p.Rebuild(t.Context(), w.clear, kept(2, func(n int) {
		s := w.status(p)
		require.True(t, s.Rebuilding && s.Running)
		require.EqualValues(t, n, s.Events)
		switch n {
		case 0:
			require.Empty(t, w.effects())
			handleAll(t, p, a[5], a[1], a[4], a[1]) // out of order even: what is kept comes first
			handleAll(t, p, b...)
			require.EqualValues(t, 6, w.status(p).Waiting)
			require.Empty(t, w.effects())
		case 4:
			require.Equal(t, []string{"a1", "a2", "a3", "a4"}, w.effects())
			handleAll(t, p, a[2]) // replayed already
			require.EqualValues(t, 6, w.status(p).Waiting)
		}
	}, append(a[:5:5], b[0])...), func(done readmodel.Progress) { progress = append(progress, done) }))
	w.awaitEffects(9)
	require.Equal(t, []string{"a1", "a2", "a3", "a4", "a5", "b1"}, w.effects()[:6])
	require.ElementsMatch(t, []string{"a6", "b2", "b3"}, w.effects()[6:])
	require.Empty(t, w.keys())
	handleAll(t, p, append(a, b...)...)
	require.Len(t, w.effects(), 9, "all of them are duplicates")
	s := w.status(p)
	require.False(t, s.Rebuilding || s.Running)
	require.EqualValues(t, 1, s.Generation)
	require.Equal(t, "balances@1", s.Consumer)
	require.Len(t, progress, 3)
	require.EqualValues(t, 6, progress[2].Events)
	require.Equal(t, "6", progress[2].Checkpoint)
	require.Positive(t, progress[2].PerSecond)
}

// A handler that has begun before the reset writes into the old read model, or not at all.
func TestResetWaitsForHandlersAtWork(t *testing.T) {
	t.Parallel()
	for name, batch := range map[string]bool{"alone": false, "in a batch": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			began, release := make(chan struct{}), make(chan struct{})
			slow := false
			box := newBox(w.units, &inbox.Config{CrashGuard: -1}) // while tries are counted before they are made, there are no batches
			p := readmodel.New(box, "balances", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
				if m.ID == "a2" && !slow {
					slow = true
					close(began)
					<-release
				}
				return w.effect(ctx, m)
			}))
			a := some("a", 1, 2)
			handled, rebuilt := make(chan error, 1), make(chan error, 1)
			go func() {
				if batch {
					handled <- p.HandleBatch(t.Context(), a)
				} else {
					handled <- errors.Join(p.Handle(t.Context(), a[0]), p.Handle(t.Context(), a[1]))
				}
			}()
			<-began
			go func() { rebuilt <- p.Rebuild(t.Context(), w.clear, kept(9, nil, a...), nil) }()
			await.True(t, func() bool { return w.waitsAtTheGate("balances") || len(rebuilt) > 0 }, "the rebuild waits for the handler")
			close(release)
			require.NoError(t, <-handled)
			require.NoError(t, <-rebuilt)
			require.Equal(t, []string{"a1", "a2"}, w.effects())
		})
	}
}

// Another process has known the read model before the reset.
func TestProcessRunsAcrossAReset(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	there := w.hasty(nil)
	here, other := readmodel.New(w.box, "balances", messaging.HandlerFunc(w.effect)), readmodel.New(there, "balances", messaging.HandlerFunc(w.effect))
	a := some("a", 1, 6)
	handleAll(t, here, a[0])
	handleAll(t, other, a[1])
	require.NoError(t, here.Rebuild(t.Context(), w.clear, kept(1, func(n int) {
		if n == 1 {
			handleAll(t, other, a[3])
			require.NoError(t, other.HandleBatch(t.Context(), a[3:5]))
			require.Equal(t, []string{"a1"}, w.effects())
		}
	}, a[:3]...), nil))
	handleAll(t, other, a[5])
	require.Equal(t, []string{"a1", "a2", "a3"}, w.effects())
	require.Equal(t, []string{"a4", "a5", "a6"}, w.parked())
	runParked(t, there)
	w.awaitEffects(6)
	require.Equal(t, []string{"a1", "a2", "a3", "a4", "a5", "a6"}, w.effects())
}

// A process without new messages finds parked messages of a generation that it does not know yet.
func TestIdleProcessHearsOfARebuild(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	idle := w.hasty(nil)
	handleAll(t, readmodel.New(idle, "balances", messaging.HandlerFunc(w.effect)))
	runParked(t, idle)
	p := readmodel.New(w.box, "balances", messaging.HandlerFunc(w.effect))
	a := some("a", 1, 2)
	require.NoError(t, p.Rebuild(t.Context(), w.clear, kept(1, func(int) { handleAll(t, p, a[1]) }, a[0]), nil))
	w.awaitEffects(2)
	require.Equal(t, []string{"a1", "a2"}, w.effects())
}

func TestReplayedMessageThatFailsIsWaitedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.hasty(func(c *inbox.Config) { c.Retry.Delay = 50 * time.Millisecond })
	tries := 0
	p := readmodel.New(box, "balances", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		switch m.ID {
		case "a2":
			if tries++; tries < 6 {
				return errNotNow
			}
		case "b1":
			return messaging.Permanent(errNotNow)
		}
		return w.effect(ctx, m)
	}))
	a, b := some("a", 1, 4), some("b", 1, 3)
	require.NoError(t, p.Rebuild(t.Context(), w.clear, kept(9, func(int) { handleAll(t, p, a[3], b[2]) }, a[0], a[1], b[0], a[2], b[1]), nil))
	require.Equal(t, []string{"a1"}, w.effects())
	require.Equal(t, [2][]string{{"a2", "a3", "a4"}, {"b2", "b3"}}, byKey(w.parked()))
	require.Len(t, w.dead(), 1)
	require.Equal(t, "balances@1", w.dead()[0].Key.Consumer)
	runParked(t, box)
	await.True(t, func() bool { return len(w.effects()) == 4 }, "four effects")
	require.Equal(t, []string{"a1", "a2", "a3", "a4"}, w.effects())
	require.Equal(t, []string{"b2", "b3"}, w.parked())
}

// A message that had failed before the reset is not lost, whether the source brings it or not. If the
// source does, it takes its place.
func TestWhatWasParkedBeforeTheReset(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.hasty(func(c *inbox.Config) { c.Retry.Tries = 1 })
	broken := true
	p := readmodel.New(box, "balances", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		switch {
		case broken && m.ID == "a2":
			return errNotNow
		case broken && m.ID == "b1":
			return messaging.Permanent(errNotNow)
		}
		return w.effect(ctx, m)
	}))
	a, b := some("a", 1, 4), some("b", 1, 2)
	handleAll(t, p, a[:3]...)
	handleAll(t, p, b...)
	require.Equal(t, []string{"a2", "a3", "b2"}, w.parked())
	require.Len(t, w.dead(), 1)
	broken = false
	cut := errors.New("cut")
	history := kept(9, func(int) { handleAll(t, p, a[3]) }, a[:2]...) // neither a3 nor b
	err := p.Rebuild(t.Context(), w.clear, func(context.Context, string, func(context.Context, []event.Envelope, string) error) error {
		return cut
	}, nil)
	require.ErrorIs(t, err, cut)
	require.ErrorContains(t, err, "readmodel: rebuild balances")
	require.Equal(t, readmodel.Status{
		Name: "balances", Generation: 1, Consumer: "balances@1", Rebuilding: true, Waiting: 4,
		StartedAt: w.status(p).StartedAt, UpdatedAt: w.status(p).UpdatedAt,
	}, w.status(p))
	require.Empty(t, w.dead())
	require.Empty(t, w.keys())
	require.NoError(t, p.Rebuild(t.Context(), w.clear, history, nil), "again from the start")
	require.Equal(t, []string{"a1", "a2"}, w.effects())
	runParked(t, box)
	w.awaitEffects(6)
	require.Equal(t, [2][]string{{"a1", "a2", "a3", "a4"}, {"b1", "b2"}}, byKey(w.effects()))
	require.EqualValues(t, 2, w.status(p).Generation)
}

func TestResetIsAllOrNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := readmodel.New(w.box, "balances", messaging.HandlerFunc(w.effect))
	a := some("a", 1, 2)
	handleAll(t, p, a[0])
	err := p.Rebuild(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		return errors.Join(w.clear(ctx, u), errNotNow)
	}, kept(1, nil, a...), nil)
	require.ErrorIs(t, err, errNotNow)
	require.Equal(t, []string{"a1"}, w.effects())
	require.NoError(t, p.Resume(t.Context(), func(context.Context, string, func(context.Context, []event.Envelope, string) error) error {
		return errors.New("there is nothing to go on with")
	}, nil))
	handleAll(t, p, a...)
	require.Equal(t, []string{"a1", "a2"}, w.effects())
	require.Zero(t, w.status(p).Generation)
}

// One of several rebuilds runs, and goes on elsewhere when its process has died.
func TestRebuildIsTakenOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	here, there := readmodel.New(w.box, "balances", messaging.HandlerFunc(w.effect)), readmodel.New(w.hasty(nil), "balances", messaging.HandlerFunc(w.effect))
	a := some("a", 1, 4)
	var seen []int
	note := func(n int) { seen = append(seen, n) }
	err := here.Rebuild(t.Context(), w.clear, kept(1, func(n int) {
		note(n)
		require.ErrorIs(t, there.Rebuild(t.Context(), w.clear, nil, nil), readmodel.ErrRebuilding)
		require.ErrorIs(t, there.Resume(t.Context(), nil, nil), readmodel.ErrRebuilding)
		if n == 2 {
			_, err := w.db.ExecContext(t.Context(), "UPDATE inbox_read_model SET lease_until = clock_timestamp()") // it is silent for that long
			require.NoError(t, err)
			require.NoError(t, there.Resume(t.Context(), kept(1, note, a...), nil))
			require.False(t, w.status(here).Rebuilding)
		}
	}, a...), nil)
	require.ErrorIs(t, err, readmodel.ErrRebuilding, "it is told when it wants to go on")
	require.Equal(t, []int{0, 1, 2, 2, 3}, seen)
	require.Equal(t, []string{"a1", "a2", "a3", "a4"}, w.effects())
	require.False(t, w.status(here).Rebuilding)
}

func TestAwaitKnowsTheGeneration(t *testing.T) {
	sink := &keepingSink{}
	w := newWorld(t, sink)
	p := readmodel.New(w.box, "balances", messaging.HandlerFunc(w.effect))
	var token uow.Token
	require.NoError(t, w.units.Do(t.Context(), func(_ context.Context, u *uow.Unit) error { return u.Add("order", []byte("{}")) }, uow.WithToken(&token)))
	m := messaging.NewMessage(sink.events[0], 1, nil)
	require.NoError(t, p.Rebuild(t.Context(), w.clear, kept(1, func(int) {
		short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, w.box.Await(short, "balances", token), context.DeadlineExceeded)
	}, m), nil))
	require.NoError(t, w.box.Await(t.Context(), "balances", token))
}

// keepingSink is an outbox without a table.
type keepingSink struct{ events []event.Envelope }

func (s *keepingSink) Flush(_ context.Context, _ bun.IDB, events []event.Envelope) error {
	s.events = append(s.events, events...)
	return nil
}

func TestNamesOfGenerationsAreTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := messaging.HandlerFunc(w.effect)
	require.Panics(t, func() { readmodel.New(w.box, "balances@1", h) })
	require.Panics(t, func() { readmodel.New(w.box, "", h) })
	require.Panics(t, func() { w.box.Wrap("balances@1", h) })
	require.NotPanics(t, func() { w.box.Wrap("balances@eu", h) })
}

// Parked messages wait at the gate while the reset is at work, and hold no row that the reset needs.
func TestParkedMessagesWaitForAReset(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.hasty(nil)
	p := readmodel.New(box, "balances", messaging.HandlerFunc(w.effect), inbox.StoreFirst())
	a := some("a", 1, 1)
	handleAll(t, p, a...)
	require.NoError(t, p.Rebuild(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		runParked(t, box)
		await.True(t, func() bool { return w.waitsAtTheGate("balances") }, "the parked message waits at the gate")
		return w.clear(ctx, u)
	}, kept(1, nil, a...), nil))
	handleAll(t, p, some("b", 1, 1)...)
	w.awaitEffects(2)
	require.ElementsMatch(t, []string{"a1", "b1"}, w.effects())
}

// waitsAtTheGate says whether anything waits for the gate of a read model of this test.
func (w *world) waitsAtTheGate(model string) bool {
	w.t.Helper()
	return column[bool](w.t, w.db.DB, `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objsubid = 1
		AND (classid::bigint << 32) | objid::bigint = hashtextextended(?, 'inbox_read_model'::regclass::oid::bigint))`, model)[0]
}
