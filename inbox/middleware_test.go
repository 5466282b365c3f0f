package inbox_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/readmodel"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
)

// outcomes are what oncebox.inbox.messages has counted of one consumer.
func outcomes(t *testing.T, reader *metric.ManualReader, consumer string) map[string]int64 {
	t.Helper()
	var data metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &data))
	got := map[string]int64{}
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			sum, ok := m.Data.(metricdata.Sum[int64])
			if m.Name != "oncebox.inbox.messages" || !ok {
				continue
			}
			for _, p := range sum.DataPoints {
				name, _ := p.Attributes.Value("consumer")
				outcome, _ := p.Attributes.Value("outcome")
				if name.AsString() == consumer && p.Value > 0 {
					got[outcome.AsString()] = p.Value
				}
			}
		}
	}
	return got
}

// around notes the messages that pass it, whether they were handled in a unit, and what came of them. Stored messages of two keys pass it at once.
type around struct {
	mu      sync.Mutex
	passed  []string
	within  []bool
	results []error
}

func (a *around) middleware(next messaging.Handler) messaging.Handler {
	return messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		_, within := uow.FromContext(ctx)
		a.mu.Lock()
		a.passed, a.within = append(a.passed, m.ID), append(a.within, within)
		a.mu.Unlock()
		err := next.Handle(ctx, m)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.results = append(a.results, err)
		return err
	})
}

// aged is an ordered message that is older than the others by an age.
func aged(id string, age time.Duration) *messaging.Message {
	m := ordered(id, "of-"+id)
	m.OccurredAt = time.Now().Add(-age)
	return m
}

// Whichever way a message comes to its handler, it passes the middleware, in the unit if there is one. What is skipped is settled, entered, and counted as
// skipped. Its copies are duplicates.
func TestMiddlewareIsAroundEachHandler(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	reader := metric.NewManualReader()
	provider := metric.NewMeterProvider(metric.WithReader(reader))
	type kind struct {
		wrap   func(*inbox.Inbox, string, messaging.Handler, ...inbox.Option) messaging.Handler
		leased bool // the handler has no unit
		stored bool // it is handled by RunParked
		batch  bool
	}
	wrap := func(box *inbox.Inbox, name string, h messaging.Handler, opts ...inbox.Option) messaging.Handler {
		return box.Wrap(name, h, opts...)
	}
	bulk := func(box *inbox.Inbox, name string, h messaging.Handler, opts ...inbox.Option) messaging.Handler {
		return box.WrapBatch(name, func(ctx context.Context, msgs []*messaging.Message) error {
			for _, m := range msgs {
				if err := h.Handle(ctx, m); err != nil {
					return err
				}
			}
			return nil
		}, opts...)
	}
	leased := func(box *inbox.Inbox, name string, h messaging.Handler, opts ...inbox.Option) messaging.Handler {
		return box.WrapLeased(name, h, opts...)
	}
	stored := func(inner func(*inbox.Inbox, string, messaging.Handler, ...inbox.Option) messaging.Handler) func(
		*inbox.Inbox, string, messaging.Handler, ...inbox.Option) messaging.Handler {
		return func(box *inbox.Inbox, name string, h messaging.Handler, opts ...inbox.Option) messaging.Handler {
			return inner(box, name, h, append(opts, inbox.StoreFirst())...)
		}
	}
	readModel := func(box *inbox.Inbox, name string, h messaging.Handler, opts ...inbox.Option) messaging.Handler {
		return readmodel.New(box, name, h, opts...)
	}
	for name, k := range map[string]kind{
		"handler": {wrap: wrap}, "batch": {wrap: wrap, batch: true}, "writer": {wrap: bulk, batch: true}, "alone": {wrap: bulk},
		"leased": {wrap: leased, leased: true}, "stored": {wrap: stored(wrap), stored: true},
		"model": {wrap: readModel}, "models": {wrap: readModel, batch: true},
		"leased-later": {wrap: stored(leased), leased: true, stored: true}, "writer-later": {wrap: stored(bulk), stored: true, batch: true},
	} {
		t.Run(name, func(t *testing.T) {
			box := w.hasty(func(c *inbox.Config) { c.CrashGuard, c.Telemetry.MeterProvider = -1, provider })
			var handled []string
			var seen around
			h := k.wrap(box, name, messaging.HandlerFunc(func(_ context.Context, m *messaging.Message) error {
				handled = append(handled, m.ID)
				return nil
			}), inbox.Use(seen.middleware, messaging.MaxAge(time.Hour)), inbox.WithoutUnit())
			young, old := aged(name+"-young", time.Minute), aged(name+"-old", 2*time.Hour)
			come := func() {
				if k.batch {
					require.NoError(t, h.(messaging.BatchHandler).HandleBatch(t.Context(), []*messaging.Message{old, young}))
					return
				}
				require.NoError(t, h.Handle(t.Context(), old))
				require.NoError(t, h.Handle(t.Context(), young))
			}
			come()
			want := map[string]int64{"handled": 1, "skipped": 1}
			if k.stored {
				want["parked"] = 2
				stop := runParked(t, box)
				await.True(t, func() bool { return len(w.parked()) == 0 }, "both were handled")
				stop()
			}
			require.Equal(t, want, outcomes(t, reader, name))
			require.Equal(t, []string{young.ID}, handled)
			require.ElementsMatch(t, []string{old.ID, young.ID}, seen.passed)
			require.Equal(t, []bool{!k.leased, !k.leased}, seen.within)
			require.Equal(t, 2, column[int](t, w.db.DB, "SELECT count(*) FROM inbox WHERE consumer = ?", name)[0])

			come()
			want["duplicate"] = 2
			require.Equal(t, want, outcomes(t, reader, name))
			require.Len(t, seen.passed, 2)
		})
	}
}

// The middleware of each message of a bulk writer sees the one call, and its end.
func TestMiddlewareOfABulkWriterIsAroundTheCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.settledBox()
	var seen around
	var calls [][]string
	fails := errors.New("the disk is full")
	h := box.WrapBatch("billing", func(ctx context.Context, msgs []*messaging.Message) error {
		var ids []string
		for _, m := range msgs {
			ids = append(ids, m.ID)
			require.NoError(t, w.effect(ctx, m))
		}
		calls = append(calls, ids)
		if len(msgs) > 1 {
			return fails
		}
		return nil
	}, inbox.Use(seen.middleware, messaging.MaxAge(time.Hour)))
	a, old, b := aged("a", 0), aged("old", 2*time.Hour), aged("b", 0)
	require.NoError(t, h.HandleBatch(t.Context(), []*messaging.Message{a, old, b}))
	require.Equal(t, [][]string{{"a", "b"}, {"a"}, {"b"}}, calls, "the batch, and then each alone")
	require.Equal(t, []string{"a", "old", "b", "a", "old", "b"}, seen.passed)
	require.Equal(t, []error{nil, fails, fails, nil, nil, nil}, seen.results, "the one that is skipped ends first")
	require.Equal(t, []string{"a", "b"}, w.effects())
}

// Middleware that makes a success of a failure does so for its own message. The others of the batch are not settled by it.
func TestMiddlewareSettlesItsOwnMessageOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.settledBox()
	forgiving := func(next messaging.Handler) messaging.Handler {
		return messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
			if err := next.Handle(ctx, m); m.ID != "a" {
				return err
			}
			return nil
		})
	}
	h := box.WrapBatch("billing", func(ctx context.Context, msgs []*messaging.Message) error {
		for _, m := range msgs {
			require.NoError(t, w.effect(ctx, m))
		}
		return errNotNow
	}, inbox.Use(forgiving))
	err := h.HandleBatch(t.Context(), []*messaging.Message{aged("a", 0), aged("b", 0)})
	var some *messaging.BatchError
	require.ErrorAs(t, err, &some)
	require.Len(t, some.Failed, 1)
	require.ErrorIs(t, some.Failed[1], errNotNow)
	require.Equal(t, []string{"a"}, w.effects(), "what its handler has written stays, as the middleware has decided")
}

// Writes of middleware in the unit are committed with the message, or not at all.
func TestMiddlewareRunsInTheUnitOfTheEntry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	writes := func(next messaging.Handler) messaging.Handler {
		return messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
			if err := w.effect(ctx, m); err != nil {
				return err
			}
			return next.Handle(ctx, m)
		})
	}
	box := newBox(w.units, &inbox.Config{Middleware: []messaging.Middleware{writes}})
	failing := true
	var order []string
	h := box.Wrap("billing", messaging.HandlerFunc(func(context.Context, *messaging.Message) error {
		if failing {
			return errNotNow
		}
		return nil
	}), inbox.Use(func(next messaging.Handler) messaging.Handler {
		return messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
			order = append(order, w.countIn(ctx))
			return next.Handle(ctx, m)
		})
	}))
	require.ErrorIs(t, h.Handle(t.Context(), ordered("a", "o1")), errNotNow)
	require.Empty(t, w.effects())
	failing = false
	again := ordered("a", "o1")
	again.Attempt = 2
	require.NoError(t, h.Handle(t.Context(), again))
	require.Equal(t, []string{"a"}, w.effects())
	require.Equal(t, []string{"1", "1"}, order, "the middleware of the configuration is outside that of the consumer")
}

// countIn counts the effects that the unit of ctx sees.
func (w *world) countIn(ctx context.Context) string {
	var n string
	require.NoError(w.t, w.units.DB(ctx).NewRaw("SELECT count(*)::text FROM effects").Scan(ctx, &n))
	return n
}

// A panic that Recover decides about undoes what the handler has written, and the message is a dead letter at once.
func TestRecoverMakesADeadLetter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := newBox(w.units, nil)
	h := box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		require.NoError(t, w.effect(ctx, m))
		panic("boom")
	}), inbox.Use(messaging.Recover(func(_ context.Context, _ *messaging.Message, p *messaging.PanicError) error {
		return messaging.Permanent(p)
	})))
	require.NoError(t, h.Handle(t.Context(), ordered("a", "o1")))
	require.Empty(t, w.effects())
	require.Contains(t, w.dead()[0].Error, "boom")
}

// A read model has options of its own.
func TestMiddlewareOfAReadModelIsGivenToIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := readmodel.New(w.box, "balances", messaging.HandlerFunc(w.effect))
	require.ErrorContains(t, w.box.Consume("order", "balances", p, inbox.Use(messaging.MaxAge(time.Hour))), "only options for receiving")
}
