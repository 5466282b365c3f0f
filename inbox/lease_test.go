package inbox_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/retry"
	"github.com/oncebox/oncebox/step"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

// outside is what a transaction does not reach.
type outside struct {
	mu    sync.Mutex
	calls []string
}

func (o *outside) call(what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls = append(o.calls, what)
}

func (o *outside) list() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.calls)
}

// step calls outside in a step.
func (o *outside) step(ctx context.Context, name string) error {
	_, err := step.Call(ctx, name, func(context.Context, string) (string, error) {
		o.call(name)
		return name, nil
	})
	return err
}

// effectIn is effect for units of any pool.
func effectIn(ctx context.Context, u *uow.Unit, m *messaging.Message) error {
	_, err := u.DB().NewRaw("INSERT INTO effects (what) VALUES (?)", m.ID).Exec(ctx)
	return err
}

// process is another inbox on the same database, with connections of its own.
func (w *world) process(change func(*inbox.Config)) *inbox.Inbox {
	w.t.Helper()
	units := uow.New(w.db.Another(w.t), &uow.Config{Source: "test", Telemetry: telemetry.Config{Logger: quiet()}})
	cfg := &inbox.Config{
		LeaseTTL: time.Minute, // as long as a test needs: endLeases ends it
		Retry:    inbox.RetryPolicy{Policy: retry.Policy{Delay: time.Millisecond, MaxDelay: 5 * time.Millisecond}}, PollInterval: 20 * time.Millisecond,
	}
	if change != nil {
		change(cfg)
	}
	return newBox(units, cfg)
}

// patiently is settleLater for messages that may have to wait for a lease.
func patiently(t *testing.T, h messaging.Handler, m *messaging.Message) {
	t.Helper()
	await.True(t, func() bool { return h.Handle(t.Context(), m) == nil }, "message %s is settled", m.ID)
}

func (w *world) leases() int {
	w.t.Helper()
	return column[int](w.t, w.db.DB, "SELECT count(*) FROM oncebox_lease WHERE task = 'inbox.message'")[0]
}

func (w *world) steps() []string {
	w.t.Helper()
	return column[string](w.t, w.db.DB, "SELECT name FROM inbox_step ORDER BY done_at")
}

// nothingLeft says that what was needed while messages ran has gone with them.
func (w *world) nothingLeft() {
	w.t.Helper()
	require.Zero(w.t, w.leases())
	require.Empty(w.t, w.steps())
	require.Empty(w.t, column[int](w.t, w.db.DB, "SELECT attempts FROM inbox_attempt"))
}

func TestLeasedHandlerRunsOnceAndWithoutATransaction(t *testing.T) {
	t.Parallel()
	for _, m := range []*messaging.Message{ordered(newID(t), "o1"), unordered("4711")} {
		w := newWorld(t)
		var o outside
		h := w.process(nil).WrapLeased("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
			_, within := uow.FromContext(ctx)
			require.False(t, within)
			require.Zero(t, w.entries(), "it is entered when it is done")
			require.Equal(t, 1, w.leases())
			return o.step(ctx, m.ID)
		}))
		require.NoError(t, h.Handle(t.Context(), m))
		require.NoError(t, h.Handle(t.Context(), m), "a copy")
		require.Equal(t, []string{m.ID}, o.list())
		require.Equal(t, 1, w.entries())
		w.nothingLeft()
	}
}

func TestConcurrentCopiesOfALeasedMessageRunOnce(t *testing.T) {
	t.Parallel()
	for _, m := range []*messaging.Message{ordered(newID(t), "o1"), unordered("4711")} {
		w := newWorld(t)
		var runs atomic.Int64
		var working sync.WaitGroup
		for range 4 {
			h := w.process(nil).WrapLeased("billing", messaging.HandlerFunc(func(context.Context, *messaging.Message) error {
				runs.Add(1)
				return nil
			}))
			for range 4 {
				working.Go(func() { patiently(t, h, m) })
			}
		}
		working.Wait()
		require.EqualValues(t, 1, runs.Load())
		w.nothingLeft()
	}
}

func TestSecondMessageOfALeasedKeyWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	began, release := make(chan struct{}), make(chan struct{})
	slow := w.process(nil).WrapLeased("billing", messaging.HandlerFunc(func(context.Context, *messaging.Message) error {
		close(began)
		<-release
		return nil
	}))
	var o outside
	other := w.process(nil).WrapLeased("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		return o.step(ctx, m.ID)
	}))
	done := make(chan error, 1)
	go func() { done <- slow.Handle(t.Context(), ordered("first", "o1")) }()
	<-began
	for _, m := range []*messaging.Message{ordered("second", "o1"), ordered("first", "o1")} {
		for range 5 { // more than Tries
			err := other.Handle(t.Context(), m)
			require.ErrorIs(t, err, inbox.ErrLeased)
			wait, asked := messaging.RetryDelay(err)
			require.True(t, asked)
			require.Positive(t, wait)
			require.LessOrEqual(t, wait, 20*time.Millisecond, "the other one may be done long before its lease ends")
		}
	}
	require.Empty(t, w.parked(), "it would stand before the first one")
	require.Equal(t, []int{1}, column[int](t, w.db.DB, "SELECT attempts FROM inbox_attempt"), "waiting is no try")
	require.NoError(t, other.Handle(t.Context(), ordered("of another key", "o2")))
	close(release)
	require.NoError(t, <-done)
	require.NoError(t, other.Handle(t.Context(), ordered("first", "o1")))
	require.NoError(t, other.Handle(t.Context(), ordered("second", "o1")))
	require.Equal(t, []string{"of another key", "second"}, o.list())
	w.nothingLeft()
}

// A release makes a leased handler of a handler that ran in a unit: while both are there, a message still waits for the one before it.
func TestLeasedMessageWaitsForOneInATransaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	began, release, done := make(chan struct{}), make(chan struct{}), make(chan error, 2)
	before := w.box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		close(began)
		<-release
		return w.effect(ctx, m)
	}))
	after := w.box.WrapLeased("billing", messaging.HandlerFunc(w.effect))
	go func() { done <- before.Handle(t.Context(), ordered("first", "o1")) }()
	<-began
	go func() { done <- after.Handle(t.Context(), ordered("second", "o1")) }()
	w.awaitWaiters(1)
	close(release)
	require.NoError(t, <-done)
	require.NoError(t, <-done)
	require.Equal(t, []string{"first", "second"}, w.effects())
	w.nothingLeft()
}

func TestLeaseIsRenewedWhileTheHandlerRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := w.process(nil).WrapLeased("billing", messaging.HandlerFunc(w.effect))
	h := w.process(renewedSoon).WrapLeased("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		w.endLeases()
		w.awaitRenewal()
		require.ErrorIs(t, other.Handle(t.Context(), m), inbox.ErrLeased)
		return ctx.Err()
	}))
	require.NoError(t, h.Handle(t.Context(), ordered("long", "o1")))
	w.nothingLeft()
}

// renewedSoon is for leases that are renewed in the test: after three seconds, and a busy machine may take six for it.
func renewedSoon(c *inbox.Config) { c.LeaseTTL = 9 * time.Second }

// awaitRenewal returns when a lease that has ended was renewed.
func (w *world) awaitRenewal() {
	w.t.Helper()
	await.True(w.t, func() bool {
		return column[bool](w.t, w.db.DB, "SELECT lease_until > clock_timestamp() FROM oncebox_lease WHERE task = 'inbox.message'")[0]
	}, "the lease is renewed")
}

// takeOver makes h handle a message whose lease another process has. It ends the lease again if that
// process renews it meanwhile.
func (w *world) takeOver(h messaging.Handler, m *messaging.Message) {
	w.t.Helper()
	await.True(w.t, func() bool {
		w.endLeases()
		err := h.Handle(w.t.Context(), m)
		if err != nil {
			require.ErrorIs(w.t, err, inbox.ErrLeased)
		}
		return err == nil
	}, "message %s is taken over", m.ID)
}

// endLeases makes it so that the leases have ended without a word from their holders.
func (w *world) endLeases() {
	w.t.Helper()
	w.exec("UPDATE oncebox_lease SET lease_until = clock_timestamp() - interval '1 s' WHERE task = 'inbox.message'")
}

// A process is suspended in a handler until another one has taken its message over, and then goes on.
func TestLateProcessIsRefused(t *testing.T) {
	t.Parallel()
	for name, ending := range map[string]error{
		"it succeeds": nil, "it fails": errNotNow, "it gives up": messaging.Permanent(errNotNow),
		"it asks for a pause": messaging.RetryAfter(time.Hour, errNotNow),
	} {
		for _, finished := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, the other one has finished: %v", name, finished), func(t *testing.T) {
				w := newWorld(t)
				var o outside
				m := ordered("m", "o1")
				began, release, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
				other := w.process(nil).WrapLeased("billing", messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error {
					if err := o.step(ctx, "first"); err != nil {
						return err
					}
					close(began)
					<-release
					return o.step(ctx, "second")
				}))
				// Its lease is not renewed within this test.
				late := w.process(func(c *inbox.Config) { c.LeaseTTL, c.Retry.Tries = time.Hour, 1 }).WrapLeased("billing",
					messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error {
						require.NoError(t, o.step(ctx, "first"))
						w.endLeases()
						go func() { done <- other.Handle(t.Context(), m) }()
						<-began
						if finished {
							close(release)
							require.NoError(t, <-done)
						}
						require.ErrorIs(t, o.step(ctx, "of the late one"), inbox.ErrLeaseLost)
						require.ErrorIs(t, context.Cause(ctx), inbox.ErrLeaseLost)
						require.ErrorIs(t, inbox.StepInUnit(ctx, "in vain", func(ctx context.Context, u *uow.Unit) error {
							return effectIn(ctx, u, m)
						}), inbox.ErrLeaseLost)
						return ending
					}))
				err := late.Handle(t.Context(), m)
				if finished && ending == nil {
					require.NoError(t, err, "it is settled, here or elsewhere")
				} else {
					require.ErrorIs(t, err, inbox.ErrLeaseLost)
				}
				if !finished {
					require.Equal(t, []string{"first"}, w.steps())
					require.Zero(t, w.entries())
					close(release)
					require.NoError(t, <-done)
				}
				require.ElementsMatch(t, []string{"first", "of the late one", "second"}, o.list(), "the first one was not made twice")
				require.Empty(t, w.dead())
				require.Empty(t, w.parked())
				require.Empty(t, w.effects())
				require.Equal(t, 1, w.entries())
				w.nothingLeft()
			})
		}
	}
}

// The handler of the process that lost the lease learns of it without asking.
func TestHandlerIsCancelledWhenItsLeaseIsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := ordered("m", "o1")
	other := w.process(nil).WrapLeased("billing", messaging.HandlerFunc(w.effect))
	soon := func(c *inbox.Config) { c.LeaseTTL = time.Second } // it notices when it renews the lease
	h := w.process(soon).WrapLeased("billing", messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error {
		w.takeOver(other, m)
		<-ctx.Done()
		return context.Cause(ctx)
	}))
	require.ErrorIs(t, h.Handle(t.Context(), m), inbox.ErrLeaseLost)
	require.NoError(t, h.Handle(t.Context(), m), "the consumer tries it again")
	require.Equal(t, []string{"m"}, w.effects())
}

// A process that cannot reach the database cannot know that it has the lease.
func TestHandlerIsCancelledWhenItsLeaseCannotBeRenewed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pool := w.db.Another(t)
	box := newBox(uow.New(pool, &uow.Config{Telemetry: telemetry.Config{Logger: quiet()}}), &inbox.Config{LeaseTTL: time.Second})
	h := box.WrapLeased("billing", messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error {
		require.NoError(t, pool.Close())
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), inbox.ErrLeaseLost)
		return nil
	}))
	m := ordered("m", "o1")
	require.Error(t, h.Handle(t.Context(), m))
	var o outside
	patiently(t, w.process(nil).WrapLeased("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		return o.step(ctx, m.ID)
	})), m)
	require.Equal(t, []string{"m"}, o.list())
	w.nothingLeft()
}

func TestFailedLeasedMessageIsParkedAndItsKeyWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.process(nil)
	var o outside
	var mended atomic.Bool
	h := box.WrapLeased("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		if err := o.step(ctx, m.ID); err != nil {
			return err
		}
		if m.ID == "bad" && !mended.Load() {
			return errNotNow
		}
		return o.step(ctx, m.ID+" done")
	}))
	bad := ordered("bad", "o1")
	for n := 1; n <= 3; n++ {
		err := h.Handle(t.Context(), bad)
		require.Zero(t, w.leases(), "nobody has to wait for its end")
		if n < 3 {
			require.ErrorIs(t, err, errNotNow)
			require.Empty(t, w.parked())
			continue
		}
		require.NoError(t, err, "now it waits in the database")
	}
	require.NoError(t, h.Handle(t.Context(), ordered("next", "o1")))
	require.NoError(t, h.Handle(t.Context(), ordered("other key", "o2")))
	for _, m := range []*messaging.Message{ordered("next", "o1"), bad} {
		require.NoError(t, h.Handle(t.Context(), m), "a copy")
	}
	require.Equal(t, []string{"bad", "next"}, w.parked())
	require.Equal(t, []int{3, 0}, column[int](t, w.db.DB, "SELECT attempts FROM inbox_parked ORDER BY seq"))
	require.Equal(t, []string{"bad"}, w.steps())

	mended.Store(true)
	runParked(t, box)
	await.True(t, func() bool { return len(w.keys()) == 0 }, "no key stands still")
	require.Equal(t, []string{"bad", "other key", "other key done", "bad done", "next", "next done"}, o.list(), "each step once")
	require.Equal(t, 3, w.entries())
	w.nothingLeft()
}

func TestUnorderedLeasedMessageIsParkedAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.process(func(c *inbox.Config) { c.Retry.Tries = 1 })
	var tries atomic.Int64
	h := box.WrapLeased("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		return inbox.StepInUnit(ctx, "effect", func(ctx context.Context, u *uow.Unit) error {
			if m.ID == "bad" && tries.Add(1) < 3 {
				return errNotNow
			}
			return effectIn(ctx, u, m)
		})
	}), inbox.Unordered())
	require.NoError(t, h.Handle(t.Context(), ordered("bad", "o1")))
	require.NoError(t, h.Handle(t.Context(), ordered("a", "o1")))
	w.exec("DELETE FROM inbox")
	require.NoError(t, h.Handle(t.Context(), ordered("bad", "o1")), "a copy, although the entry has expired")
	runParked(t, box)
	w.awaitEffects(2)
	require.Equal(t, []string{"a", "bad"}, w.effects())
	w.nothingLeft()
}

// A panic is a failure like any other, for messages from the broker and for parked messages.
func TestLeasedMessageIsGivenUpAfterItsAttempts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.process(func(c *inbox.Config) { c.Retry.MaxAttempts = 5 })
	var tries atomic.Int64
	var mended atomic.Bool
	var o outside
	h := box.WrapLeased("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		if err := o.step(ctx, m.ID); err != nil {
			return err
		}
		if m.ID == "bad" && !mended.Load() {
			tries.Add(1)
			panic("no")
		}
		return nil
	}))
	settleLater(t, h, ordered("bad", "o1"))
	require.NoError(t, h.Handle(t.Context(), ordered("next", "o1")))
	stop := runParked(t, box)
	await.True(t, func() bool { return len(w.dead()) == 1 }, "a dead letter")
	stop()
	require.EqualValues(t, 5, tries.Load())
	require.Equal(t, 5, w.dead()[0].Attempts)
	require.Contains(t, w.dead()[0].Error, "no")
	require.Equal(t, []string{"DEAD"}, w.keys())
	require.Equal(t, []string{"bad"}, w.steps(), "a replay skips it")
}

func TestPermanentErrorOfALeasedHandlerMakesADeadLetter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.process(nil).WrapLeased("billing", gaveUp())
	m := ordered("m", "o1")
	m.Attempt = 7 // the consumer counts the times it waited for a lease too
	require.NoError(t, h.Handle(t.Context(), m))
	require.NoError(t, h.Handle(t.Context(), m), "a copy")
	require.Len(t, w.dead(), 1)
	require.Equal(t, 1, w.dead()[0].Attempts)
	w.nothingLeft()
}

func TestLeasedMessageThatKillsItsProcessIsGivenUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := ordered("deadly", "o1")
	runs := 0
	for range 3 {
		pool := w.db.Another(t)
		units := uow.New(pool, &uow.Config{Telemetry: telemetry.Config{Logger: quiet()}})
		box := newBox(units, &inbox.Config{LeaseTTL: time.Second, Retry: inbox.RetryPolicy{MaxCrashes: 3}})
		h := box.WrapLeased("billing", messaging.HandlerFunc(func(context.Context, *messaging.Message) error {
			runs++
			return pool.Close() // nothing of what happens now is known to others
		}))
		require.Error(t, h.Handle(t.Context(), m))
		require.Equal(t, 1, w.leases())
		w.endLeases()
	}
	require.NoError(t, w.process(func(c *inbox.Config) { c.Retry.MaxCrashes = 3 }).WrapLeased("billing", messaging.HandlerFunc(w.effect)).
		Handle(t.Context(), m))
	require.Equal(t, 3, runs)
	require.Contains(t, w.dead()[0].Error, "the death of its process")
	require.Equal(t, 3, w.dead()[0].Attempts)
	require.Zero(t, w.leases())
}

func TestInterruptedLeasedMessageHasNotFailed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	var interrupt bool
	h := w.process(nil).WrapLeased("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		if interrupt {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		}
		return errNotNow
	}))
	m := ordered("m", "o1")
	require.ErrorIs(t, h.Handle(ctx, m), errNotNow)
	interrupt = true
	require.ErrorIs(t, h.Handle(ctx, m), context.Canceled)
	require.Equal(t, []int{1}, column[int](t, w.db.DB, "SELECT attempts FROM inbox_attempt"))
	require.Zero(t, w.leases(), "the next process need not wait")
}

func TestDurableLeasedHandler(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.process(nil)
	var o outside
	h := box.WrapLeased("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		return o.step(ctx, m.ID)
	}), inbox.StoreFirst())
	for _, id := range []string{"a", "b", "a", "c"} {
		require.NoError(t, h.Handle(t.Context(), ordered(id, "o1")))
	}
	require.Equal(t, []string{"a", "b", "c"}, w.parked())
	runParked(t, box)
	await.True(t, func() bool { return len(w.keys()) == 0 }, "no key stands still")
	require.Equal(t, []string{"a", "b", "c"}, o.list())
	w.nothingLeft()
}

// Two processes believe that they have the key: the lease lets one of them run its head, and the other one tries later.
func TestHeadWaitsForItsLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	storing := w.process(nil).WrapLeased("billing", messaging.HandlerFunc(w.effect), inbox.StoreFirst())
	require.NoError(t, storing.Handle(t.Context(), ordered("m", "o1")))
	began, release := make(chan struct{}), make(chan struct{})
	var o outside
	handler := func(ctx context.Context, m *messaging.Message) error {
		if err := o.step(ctx, m.ID); err != nil {
			return err
		}
		close(began)
		<-release
		return nil
	}
	first, second := w.process(nil), w.process(nil)
	first.WrapLeased("billing", messaging.HandlerFunc(handler))
	second.WrapLeased("billing", messaging.HandlerFunc(handler))
	runParked(t, first)
	<-began
	w.exec("UPDATE inbox_key SET owner = NULL, due_at = clock_timestamp()")
	runParked(t, second)
	taken := func() bool {
		return column[int](t, w.db.DB, "SELECT count(*) FROM inbox_key WHERE owner IS NOT NULL")[0] == 1
	}
	await.True(t, taken, "the second process takes the key")
	await.True(t, func() bool { return !taken() }, "it gives the key back")
	require.Equal(t, []int{1}, column[int](t, w.db.DB, "SELECT attempts FROM inbox_parked"))
	close(release)
	await.True(t, func() bool { return len(w.keys()) == 0 }, "no key stands still")
	require.Equal(t, []string{"m"}, o.list())
	w.nothingLeft()
}

// An operator takes a parked message away while it runs. The operator's decision holds.
func TestHeadThatWasTakenAwayMeanwhileIsNotSettled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.process(nil)
	done := make(chan struct{})
	h := box.WrapLeased("billing", messaging.HandlerFunc(func(context.Context, *messaging.Message) error {
		defer close(done)
		w.exec("DELETE FROM inbox_parked WHERE message_id = 'm'")
		w.exec("UPDATE inbox_key SET state = 'DEAD', owner = NULL, due_at = 'infinity'")
		return nil
	}), inbox.StoreFirst())
	require.NoError(t, h.Handle(t.Context(), ordered("m", "o1")))
	stop := runParked(t, box)
	<-done
	stop()
	require.Equal(t, []string{"DEAD"}, w.keys())
	require.Zero(t, w.leases())
}

func TestLeasedHandlerWithinAUnitIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.box.WrapLeased("billing", messaging.HandlerFunc(w.effect))
	err := w.units.Do(t.Context(), func(ctx context.Context, _ *uow.Unit) error { return h.Handle(ctx, ordered("m", "o1")) })
	require.ErrorContains(t, err, "within a unit of work")
	require.Empty(t, w.effects())
	_, batches := h.(messaging.BatchHandler)
	require.False(t, batches)
}

// Processes with the same messages, handlers that fail, keys that stop and flow, leases that end without a word: each step is
// done once, except those that a lost lease has cut, and in the order of its key.
func TestStepsAreDoneOnceAndInOrderWhileLeasesAreLost(t *testing.T) {
	t.Parallel()
	const keys, perKey, processes = 4, 12, 3
	w := newWorld(t)
	var o outside
	var tries sync.Map
	stopped, stop := context.WithCancel(t.Context())
	handle := func(ctx context.Context, m *messaging.Message) error {
		if err := o.step(ctx, m.ID); err != nil {
			return err
		}
		n, _ := tries.LoadOrStore(m.ID, new(atomic.Int64))
		if m.Sequence%5 == 3 && n.(*atomic.Int64).Add(1) <= 2 {
			return errNotNow
		}
		return inbox.StepInUnit(ctx, "effect", func(ctx context.Context, u *uow.Unit) error { return effectIn(ctx, u, m) })
	}
	var working, ending sync.WaitGroup
	for range processes {
		// On a busy machine a message can lose its lease in each of ten tries. Such tries count as crashes.
		box := w.process(func(c *inbox.Config) { c.Retry.Tries, c.Retry.MaxAttempts, c.Retry.MaxCrashes = 1, -1, -1 })
		h := box.WrapLeased("billing", messaging.HandlerFunc(handle))
		runParked(t, box)
		for key := range keys {
			working.Go(func() {
				for n := range perKey {
					m := ordered(fmt.Sprintf("%d/%02d", key, n), fmt.Sprint("o", key))
					m.Sequence = int64(n)
					patiently(t, h, m)
				}
			})
		}
	}
	ending.Go(func() {
		for n := 0; n < 200 && stopped.Err() == nil; n++ { // without end nobody might get done on a slow machine
			_, err := w.db.ExecContext(t.Context(), "UPDATE oncebox_lease SET lease_until = clock_timestamp() - interval '1 s' WHERE task = 'inbox.message'")
			require.NoError(t, err)
			<-time.After(time.Millisecond) // so that handlers get on between two ends
		}
	})
	working.Wait()
	w.awaitEffects(keys * perKey)
	stop()
	ending.Wait()
	last := map[byte]string{}
	for _, effect := range w.effects() {
		require.Greater(t, effect, last[effect[0]], "in order, and once")
		last[effect[0]] = effect
	}
	require.Len(t, w.effects(), keys*perKey)
	await.True(t, func() bool { return w.leases() == 0 }, "no lease is left")
	require.Empty(t, w.steps())
}

// A lease that ends this moment is not asked for again at once, nor after a pause that grows.
func TestWaitForALeaseIsNeverNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	began, release := make(chan struct{}), make(chan struct{})
	box := newBox(w.units, nil)
	slow := box.WrapLeased("billing", messaging.HandlerFunc(func(context.Context, *messaging.Message) error {
		close(began)
		<-release
		return nil
	}))
	done := make(chan error, 1)
	go func() { done <- slow.Handle(t.Context(), ordered("first", "o1")) }()
	<-began
	lock := column[int64](t, w.db.DB, "SELECT key_lock FROM oncebox_lease WHERE task = 'inbox.message'")[0]
	close(release)
	require.NoError(t, <-done)
	h := box.WrapLeased("billing", messaging.HandlerFunc(func(context.Context, *messaging.Message) error { return nil }))
	for n := 0; ; n++ {
		w.exec(`INSERT INTO oncebox_lease (task, consumer, key_lock, owner, lease_until)
			VALUES ('inbox.message', 'billing', ?, gen_random_uuid(), clock_timestamp() + interval '40 ms')`, lock)
		if err := h.Handle(t.Context(), ordered(fmt.Sprint(n), "o1")); err != nil { // or it has ended
			require.ErrorIs(t, err, inbox.ErrLeased)
			wait, _ := messaging.RetryDelay(err)
			require.Equal(t, 50*time.Millisecond, wait)
			return
		}
	}
}
