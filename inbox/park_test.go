package inbox_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/parked"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/retry"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

// hasty is an inbox whose parked messages are tried again soon.
func (w *world) hasty(change func(*inbox.Config)) *inbox.Inbox {
	soon := retry.Policy{Delay: time.Millisecond, MaxDelay: 5 * time.Millisecond}
	cfg := &inbox.Config{Retry: inbox.RetryPolicy{Policy: soon}, PollInterval: 20 * time.Millisecond}
	if change != nil {
		change(cfg)
	}
	return newBox(w.units, cfg)
}

// runParked has box work on parked messages until the returned function is called.
func runParked(t *testing.T, box *inbox.Inbox) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- box.RunParked(ctx) }()
	stopped := sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(stopped)
	return stopped
}

// settleLater hands m over as a consumer does: again and again, until it is settled.
func settleLater(t *testing.T, h messaging.Handler, m *messaging.Message) {
	t.Helper()
	for try := *m; h.Handle(t.Context(), &try) != nil; try.Attempt++ {
		require.Less(t, try.Attempt, 20, "it is never settled")
	}
}

func (w *world) parked() []string {
	w.t.Helper()
	return column[string](w.t, w.db.DB, "SELECT message_id FROM inbox_parked ORDER BY seq")
}

func (w *world) keys() []string {
	w.t.Helper()
	return column[string](w.t, w.db.DB, "SELECT state FROM inbox_key ORDER BY since")
}

// awaitEffects returns when n effects are there and nothing waits.
func (w *world) awaitEffects(n int) {
	w.t.Helper()
	await.True(w.t, func() bool { return len(w.effects()) >= n && len(w.parked()) == 0 }, "%d effects, and no message is parked", n)
}

func TestFailingMessageIsParkedAndThoseBehindItWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.hasty(nil)
	var mended atomic.Bool
	h := box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		if m.ID == "bad" && !mended.Load() {
			return errNotNow
		}
		return w.effect(ctx, m)
	}))
	bad := ordered("bad", "o1")
	for n := 1; n <= 3; n++ {
		bad.Attempt = n
		err := h.Handle(t.Context(), bad)
		if n < 3 {
			require.ErrorIs(t, err, errNotNow, "it is tried where it is first")
			require.Empty(t, w.parked())
			continue
		}
		require.NoError(t, err, "now it waits in the database")
	}
	require.NoError(t, h.Handle(t.Context(), ordered("next", "o1")))
	require.NoError(t, h.Handle(t.Context(), ordered("other key", "o2")))
	require.NoError(t, h.Handle(t.Context(), ordered("next", "o1")), "a copy")
	require.NoError(t, h.Handle(t.Context(), bad), "a copy")
	require.Equal(t, []string{"bad", "next"}, w.parked())
	require.Equal(t, []string{"FAILED"}, w.keys())
	require.Equal(t, []string{"other key"}, w.effects())
	require.Equal(t, []int{3, 0}, column[int](t, w.db.DB, "SELECT attempts FROM inbox_parked ORDER BY seq"))
	require.Empty(t, column[int](t, w.db.DB, "SELECT attempts FROM inbox_attempt"))

	mended.Store(true)
	runParked(t, box)
	w.awaitEffects(3)
	require.Equal(t, []string{"other key", "bad", "next"}, w.effects())
	require.Empty(t, w.keys())
	require.NoError(t, h.Handle(t.Context(), bad), "a copy")
	require.NoError(t, h.Handle(t.Context(), ordered("later", "o1")), "the key flows again")
	require.Equal(t, []string{"other key", "bad", "next", "later"}, w.effects())
}

func TestUnorderedMessageIsParkedAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.hasty(func(c *inbox.Config) { c.Retry.Tries = 1 })
	failing := func(ctx context.Context, m *messaging.Message) error {
		if m.ID == "bad" && m.Attempt < 3 {
			return errNotNow
		}
		return w.effect(ctx, m)
	}
	h := box.Wrap("billing", messaging.HandlerFunc(failing))
	shared := box.Wrap("shared", messaging.HandlerFunc(failing), inbox.Unordered())
	require.NoError(t, h.Handle(t.Context(), unordered("bad")))
	require.NoError(t, h.Handle(t.Context(), unordered("a")))
	require.NoError(t, shared.Handle(t.Context(), ordered("bad", "o1")))
	require.NoError(t, shared.Handle(t.Context(), ordered("b", "o1")))
	require.Equal(t, []string{"a", "b"}, w.effects())
	runParked(t, box)
	w.awaitEffects(4)
	require.Equal(t, []string{"a", "b", "bad", "bad"}, w.effects())
}

func TestMessageIsGivenUpAfterItsAttempts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.hasty(func(c *inbox.Config) { c.Retry.MaxAttempts = 5 })
	var tries atomic.Int64
	var mended atomic.Bool
	h := box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		if m.ID == "bad" && !mended.Load() {
			require.EqualValues(t, tries.Add(1), m.Attempt)
			return errNotNow
		}
		return w.effect(ctx, m)
	}))
	settleLater(t, h, ordered("bad", "o1"))
	require.NoError(t, h.Handle(t.Context(), ordered("next", "o1")))
	stop := runParked(t, box)
	await.True(t, func() bool { return len(w.dead()) == 1 }, "a dead letter")
	stop()
	dead := w.dead()[0]
	require.EqualValues(t, 5, tries.Load())
	require.Equal(t, 5, dead.Attempts)
	require.Equal(t, "not now", dead.Error)
	require.True(t, dead.Holds)
	require.Equal(t, []string{"DEAD"}, w.keys())
	require.Equal(t, []string{"next"}, w.parked())
	require.Empty(t, w.effects())

	mended.Store(true)
	require.NoError(t, box.Dead().Replay(t.Context(), dead.Key, ann))
	runParked(t, box)
	w.awaitEffects(2)
	require.Equal(t, []string{"bad", "next"}, w.effects())
	require.Empty(t, w.keys())
}

func TestDeadLettersMayLetPass(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.hasty(func(c *inbox.Config) { c.ContinueAfterDead, c.Retry.MaxAttempts, c.Retry.Tries = true, 2, 1 })
	h := box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		switch m.ID {
		case "hopeless":
			return messaging.Permanent(errNotNow)
		case "bad":
			return errNotNow
		}
		return w.effect(ctx, m)
	}))
	for _, id := range []string{"hopeless", "a", "bad", "b"} {
		require.NoError(t, h.Handle(t.Context(), ordered(id, "o1")))
	}
	require.Equal(t, []string{"a"}, w.effects())
	runParked(t, box)
	w.awaitEffects(2)
	require.Equal(t, []string{"a", "b"}, w.effects())
	require.Empty(t, w.keys())
	require.Len(t, w.dead(), 2)
}

func TestRetryAfterParksAtOnceIfItIsLong(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := newBox(w.units, nil)
	h := box.Wrap("billing", messaging.HandlerFunc(func(context.Context, *messaging.Message) error {
		return messaging.RetryAfter(time.Hour, errNotNow)
	}))
	require.NoError(t, h.Handle(t.Context(), ordered("bad", "o1")))
	require.Equal(t, []string{"bad"}, w.parked())
	require.Equal(t, []bool{true}, column[bool](t, w.db.DB,
		"SELECT due_at BETWEEN clock_timestamp() + '59 min' AND clock_timestamp() + '61 min' FROM inbox_key"))
}

// A handler that takes its process with it leaves nothing but the count of its tries. A try that ends with an error ends the row of crashes.
func TestMessageThatKillsItsProcessIsGivenUp(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]inbox.RetryPolicy{"crashes": {Tries: 100, MaxCrashes: 3}, "attempts": {MaxAttempts: 3, MaxCrashes: -1}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			try := func(m *messaging.Message, killed bool) {
				box := w.hasty(func(c *inbox.Config) { c.Retry = p }) // as a process that has just started
				h := box.Wrap("billing", messaging.HandlerFunc(func(context.Context, *messaging.Message) error {
					if !killed {
						return errNotNow
					}
					_, err := w.db.ExecContext(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_locks
						WHERE locktype = 'relation' AND relation = 'inbox'::regclass AND pid <> pg_backend_pid()`)
					require.NoError(t, err)
					panic("killed")
				}))
				defer func() { _ = recover() }()
				_ = h.Handle(t.Context(), m)
			}
			for n := range 4 {
				try(ordered("deadly", "o1"), true)
				require.Len(t, w.dead(), n/3)
			}
			require.Contains(t, w.dead()[0].Error, "the death of its process")
			require.Equal(t, 3, w.dead()[0].Attempts)
			if p.MaxAttempts > 0 {
				return
			}
			for _, killed := range []bool{true, true, false, true, true} {
				try(ordered("both", "o2"), killed)
			}
			require.Empty(t, w.parked())
			require.Len(t, w.dead(), 1, "never three crashes one after the other")
		})
	}
}

// By default a message is tried for three days, however often. The time counts from its first failure, not from when it was parked behind
// others, and a policy is that of one consumer.
func TestMessageIsGivenUpAfterItsTime(t *testing.T) {
	t.Parallel()
	for name, wrap := range plainAndLeased(inbox.Retry(inbox.RetryPolicy{GiveUpAfter: time.Hour})) {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var calls, others atomic.Int64
			box := w.hasty(nil)
			fail := func(calls *atomic.Int64) messaging.HandlerFunc {
				return func(context.Context, *messaging.Message) error {
					calls.Add(1)
					return errNotNow
				}
			}
			h, other := wrap(box, fail(&calls)), box.Wrap("other", fail(&others))
			settleLater(t, h, ordered("bad", "o1"))
			settleLater(t, other, ordered("bad", "o1"))
			require.NoError(t, h.Handle(t.Context(), ordered("next", "o1")))
			runParked(t, box)
			await.True(t, func() bool { return calls.Load() > 20 && others.Load() > 20 }, "more tries than any count")
			require.Empty(t, w.dead())
			w.exec("UPDATE inbox SET processed_at = processed_at - interval '30 days'")
			w.exec("UPDATE inbox_parked SET parked_at = parked_at - interval '30 days', failing_since = failing_since - interval '1 hour'")
			await.True(t, func() bool { return len(w.dead()) == 1 }, "a dead letter")
			require.Equal(t, "bad", w.dead()[0].Envelope.ID)
			require.Equal(t, []string{"bad", "next"}, w.parked(), "the other consumer's, and what is behind the dead letter")
			require.NoError(t, box.Dead().Discard(t.Context(), w.dead()[0].Key, ann))
			seen := calls.Load()
			await.True(t, func() bool { return calls.Load() > seen+10 }, "what was parked behind it has its own time")
			require.Empty(t, w.dead())
		})
	}
}

// A consumer's setting for dead letters holds for it alone, also if an operator makes a dead letter of one
// of its messages.
func TestDeadLettersOfOneConsumerLetPass(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.hasty(func(c *inbox.Config) { c.Retry.Tries, c.Retry.Delay, c.Retry.MaxDelay = 1, time.Hour, time.Hour })
	fail := messaging.HandlerFunc(func(_ context.Context, m *messaging.Message) error {
		if m.ID == "hopeless" {
			return messaging.Permanent(errNotNow)
		}
		return errNotNow
	})
	for _, h := range []messaging.Handler{box.Wrap("passes", fail, inbox.ContinueAfterDead()), box.Wrap("waits", fail)} {
		require.NoError(t, h.Handle(t.Context(), ordered("hopeless", "o1")))
		require.NoError(t, h.Handle(t.Context(), ordered("bad", "o2")))
	}
	require.Equal(t, []string{"waits"}, column[string](t, w.db.DB, "SELECT consumer FROM inbox_dead WHERE holds"))
	parked, err := box.Parked().List(t.Context(), parked.Filter{}, nil, 0)
	require.NoError(t, err)
	require.Len(t, parked, 2)
	for _, p := range parked {
		require.NoError(t, box.Parked().GiveUp(t.Context(), p.Key, ann))
	}
	require.Equal(t, []string{"waits", "waits"}, column[string](t, w.db.DB, "SELECT consumer FROM inbox_dead WHERE holds"))
}

// Several processes get the same messages in different states of a takeover, handlers fail now and then, and what is parked
// is worked on all the time: every effect is there once, and those of a key in their order.
func TestOrderAndEffectsWhileKeysStopAndFlow(t *testing.T) {
	t.Parallel()
	const keys, perKey, processes = 6, 40, 3
	w := newWorld(t)
	var tries sync.Map // id -> *atomic.Int64
	handle := func(ctx context.Context, m *messaging.Message) error {
		n, _ := tries.LoadOrStore(m.ID, new(atomic.Int64))
		if count := n.(*atomic.Int64).Add(1); m.Sequence%7 == 3 && count <= 2 {
			return errors.Join(w.effect(ctx, m), errNotNow)
		}
		return w.effect(ctx, m)
	}
	var working sync.WaitGroup
	for range processes {
		box := w.hasty(func(c *inbox.Config) { c.Retry.Tries = 1 })
		h := box.Wrap("billing", messaging.HandlerFunc(handle))
		runParked(t, box)
		for key := range keys {
			working.Go(func() {
				for n := range perKey {
					m := ordered(fmt.Sprintf("%d/%02d", key, n), fmt.Sprint("o", key))
					m.Sequence = int64(n)
					settleLater(t, h, m)
				}
			})
		}
	}
	working.Wait()
	w.awaitEffects(keys * perKey)
	last := map[byte]string{}
	for _, effect := range w.effects() {
		require.Greater(t, effect, last[effect[0]], "in order, and once")
		last[effect[0]] = effect
	}
	require.Len(t, w.effects(), keys*perKey)
	require.Empty(t, w.keys())
}

func TestParkedMessageIsTracedAndItsPanicIsAFailure(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spans := tracetest.NewSpanRecorder()
	box := w.hasty(func(c *inbox.Config) {
		c.Retry.Tries, c.Telemetry.TracerProvider = 1, sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	})
	h := box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		switch m.Attempt {
		case 1:
			return errNotNow
		case 2:
			panic("oh no")
		}
		return w.effect(ctx, m)
	}))
	require.NoError(t, h.Handle(t.Context(), ordered("bad", "o1")))
	stop := runParked(t, box)
	w.awaitEffects(1)
	stop()
	require.Equal(t, []string{"bad"}, w.effects())
	var outcomes []string
	for _, s := range spans.Ended() {
		if s.Name() == "process order" {
			outcomes = append(outcomes, s.Status().Description)
		}
	}
	require.Equal(t, []string{"panic", ""}, outcomes)
}

// Each message that is parked behind holds the key's lock for a moment, and there is always one.
func TestKeyFlowsAgainWhileMessagesKeepComing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.hasty(func(c *inbox.Config) { c.Retry.Tries, c.CrashGuard = 1, -1 })
	var failed atomic.Bool
	h := box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		if !failed.Swap(true) {
			return errNotNow
		}
		return w.effect(ctx, m)
	}))
	require.NoError(t, h.Handle(t.Context(), ordered("00000", "o1")))
	runParked(t, box)
	var working sync.WaitGroup
	var n atomic.Int64
	flows := make(chan struct{})
	for range 3 { // as copies in several processes do
		working.Go(func() {
			for {
				select {
				case <-flows:
					return
				default:
					_ = h.Handle(t.Context(), ordered(fmt.Sprintf("%05d", n.Add(1)), "o1"))
				}
			}
		})
	}
	defer working.Wait()
	defer close(flows)
	await.True(t, func() bool { return len(w.effects()) > 200 }, "the parked messages are reached")
}

// counting counts the statements of a pool.
type counting struct{ atomic.Int64 }

func (c *counting) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.Add(1)
	return ctx
}
func (*counting) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A message is handled for longer than its lease. Nobody waits for its key: the leases of others do not end, and nobody
// asks again and again when the key is due.
func TestLongHandlerHoldsUpNothingElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cfg, err := pgx.ParseConfig(w.db.DSN)
	require.NoError(t, err)
	var statements counting
	cfg.Tracer = &statements
	pool := sql.OpenDB(stdlib.GetConnector(*cfg))
	defer pool.Close()
	w.units = uow.New(bun.NewDB(pool, pgdialect.New()), &uow.Config{Source: "test", Telemetry: telemetry.Config{Logger: quiet()}})
	box := w.hasty(func(c *inbox.Config) {
		c.Retry.Tries, c.CrashGuard, c.ParkedLease, c.PollInterval = 1, -1, time.Second, 100*time.Millisecond
	})
	var began atomic.Int64
	end := make(chan struct{})
	h := box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		switch {
		case m.Attempt == 1 && m.ID != "behind b":
			return errNotNow
		case m.Attempt == 2:
			began.Add(1)
			<-end
		}
		return w.effect(ctx, m)
	}))
	for _, m := range []*messaging.Message{ordered("a", "o1"), ordered("b", "o2"), ordered("behind b", "o2")} {
		require.NoError(t, h.Handle(t.Context(), m))
	}
	runParked(t, box)
	handlersEnd := sync.OnceFunc(func() { close(end) })
	t.Cleanup(handlersEnd) // before the parked ones are waited for, also when the test fails
	await.True(t, func() bool { return began.Load() == 2 }, "both handlers have begun")
	// The row of o1 is deleted by its handler, and locked therefore; that of o2 has to be renewed all the same.
	due := func() time.Time {
		return column[time.Time](t, w.db.DB, "SELECT due_at FROM inbox_key WHERE ordering_key LIKE '%o2'")[0]
	}
	first, before, since := due(), statements.Load(), time.Now()
	await.True(t, func() bool { return due().After(first.Add(2500 * time.Millisecond)) }, "the lease of the other key is renewed")
	require.Less(t, float64(statements.Load()-before), 60*max(time.Since(since).Seconds(), 2.5), "a few in each of ten polls in a second")
	handlersEnd()
	w.awaitEffects(3)
}

// A message without order has waited for so long that its entry has expired, and a copy was handled.
func TestParkedMessageWhoseCopyWasHandledIsNotHandledAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.hasty(func(c *inbox.Config) { c.Retry.Tries, c.CrashGuard = 1, -1 })
	failing := box.Wrap("billing", messaging.HandlerFunc(func(context.Context, *messaging.Message) error { return errNotNow }))
	require.NoError(t, failing.Handle(t.Context(), unordered("a")))
	require.NoError(t, failing.Handle(t.Context(), unordered("b")))
	require.NoError(t, failing.Handle(t.Context(), ordered("c", "o1")))
	w.exec("DELETE FROM inbox")
	require.NoError(t, failing.Handle(t.Context(), unordered("b")), "its copy fails too")
	h := box.Wrap("billing", messaging.HandlerFunc(w.effect))
	require.NoError(t, h.Handle(t.Context(), unordered("a")))
	require.NoError(t, h.Handle(t.Context(), ordered("c", "o1")), "its copy is behind it")
	require.Equal(t, []string{"a"}, w.effects())
	runParked(t, box)
	w.awaitEffects(3)
	require.ElementsMatch(t, []string{"a", "b", "c"}, w.effects())
	require.Empty(t, w.keys())
}

// A head that is another's by the time its handler fails: what becomes of it is said by its owner.
func TestFailureOfALostHeadIsNotSaid(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]error{"transient": errNotNow, "permanent": messaging.Permanent(errNotNow)} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var said bytes.Buffer
			box := inbox.New(w.units, &inbox.Config{
				Retry: inbox.RetryPolicy{Tries: 1, Policy: retry.Policy{Delay: time.Millisecond}}, CrashGuard: -1,
				Telemetry: telemetry.Config{Logger: slog.New(slog.NewTextHandler(&said, nil))},
			})
			began, release := make(chan struct{}), make(chan struct{})
			h := box.Wrap("billing", messaging.HandlerFunc(func(_ context.Context, m *messaging.Message) error {
				if m.Attempt == 1 {
					return errNotNow
				}
				close(began)
				<-release
				return failure
			}))
			require.NoError(t, h.Handle(t.Context(), ordered("a", "o1")))
			require.NoError(t, h.Handle(t.Context(), ordered("behind", "o1")))
			said.Reset()
			stop := runParked(t, box)
			<-began
			w.exec("UPDATE inbox_key SET owner = gen_random_uuid(), due_at = now() + interval '1 hour'")
			close(release)
			stop()
			require.NotContains(t, said.String(), "failed again")
			require.NotContains(t, said.String(), "given up")
			require.Equal(t, []string{"a", "behind"}, w.parked())
		})
	}
}

// Its process stops while it is tried for the first time.
func TestInterruptedFirstTryDoesNotCount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	h := w.box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error {
		require.Equal(t, 1, w.count("inbox_attempt"))
		cancel()
		return ctx.Err()
	}))
	require.ErrorIs(t, h.Handle(ctx, ordered("a", "o1")), context.Canceled)
	require.Zero(t, w.count("inbox_attempt"))
}

// The first messages after a start have their tries counted before the handler runs: as many as a former process may have had in flight
// when it died.
func TestAsManyMessagesAreCountedFirstAsTheConsumerHas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	counted := 0
	h := newBox(w.units, &inbox.Config{CrashGuard: 1}).Wrap("billing", messaging.HandlerFunc(func(_ context.Context, m *messaging.Message) error {
		counted += w.count("inbox_attempt")
		if m.ID == "1" {
			return messaging.Permanent(errNotNow)
		}
		return nil
	}), inbox.MaxInFlight(3))
	for n := range 5 {
		require.NoError(t, h.Handle(t.Context(), unordered(fmt.Sprint(n))))
	}
	require.Equal(t, 3, counted, "a dead letter is one of them")
}

// A due time that lies too far ahead for a time.Duration does not make the runner ask without a pause.
func TestKeyThatIsNeverDueIsAskedForNowAndThen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`INSERT INTO inbox_key (consumer, key_lock, tenant_id, ordering_key, state, due_at)
		VALUES ('billing', 1, 't1', 'never', 'FAILED', now() + interval '1000 years')`) // more than a time.Duration holds
	w.asksNowAndThen()
}

func TestProcessWithoutParkedMessagesAsksNowAndThen(t *testing.T) {
	t.Parallel()
	newWorld(t).asksNowAndThen()
}

// asksNowAndThen follows a process that looks for parked messages ten times in a second. A timer is never early, however busy the
// machine is: so many looks take at least so many polls.
func (w *world) asksNowAndThen() {
	t := w.t
	t.Helper()
	const looks, polls, pause = 12, 8, 100 * time.Millisecond
	cfg, err := pgx.ParseConfig(w.db.DSN)
	require.NoError(t, err)
	var seen atomic.Int64
	enough := make(chan time.Time, 1)
	cfg.Tracer = looking(func(sql string) {
		if strings.Contains(sql, "due AS MATERIALIZED") && seen.Add(1) == looks {
			enough <- time.Now()
		}
	})
	pool := sql.OpenDB(stdlib.GetConnector(*cfg))
	defer pool.Close()
	w.units = uow.New(bun.NewDB(pool, pgdialect.New()), &uow.Config{Source: "test", Telemetry: telemetry.Config{Logger: quiet()}})
	box := w.hasty(func(c *inbox.Config) { c.PollInterval = pause })
	box.Wrap("billing", messaging.HandlerFunc(w.effect))
	begun := time.Now()
	stop := runParked(t, box)
	end := await.Receive(t, enough, "%d looks for parked messages", looks)
	stop()
	require.Greater(t, end.Sub(begun), polls*pause, "for %d looks", looks)
}
