package inbox_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/retry"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

// news is a type that the first release does not know.
type news struct {
	N int `json:"n"`
}

func (news) EventType() string { return "news" }

// knownV2 is the second version of a type. The first release knows the first version.
type knownV2 struct {
	N    int    `json:"n"`
	Unit string `json:"unit"`
}

func (knownV2) EventType() string { return "known" }

// release is the service's box and handler, over a registry of its own.
func (w *world) release(register func(*event.Registry, *messaging.Router)) (*inbox.Inbox, messaging.Handler) {
	box := w.hasty(func(c *inbox.Config) { c.Retry.MaxAttempts = 2 })
	return box, box.Wrap("billing", router(register))
}

// countCalls counts the calls of a handler.
func countCalls(calls *atomic.Int64, h messaging.Handler) messaging.Handler {
	return messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		calls.Add(1)
		return h.Handle(ctx, m)
	})
}

// router parks messages that it has no handler for.
func router(register func(*event.Registry, *messaging.Router)) *messaging.Router {
	registry := event.NewRegistry()
	router := messaging.NewRouter(registry)
	router.Strict()
	register(registry, router)
	return router
}

func firstRelease(w *world) func(*event.Registry, *messaging.Router) {
	return func(r *event.Registry, router *messaging.Router) {
		event.Register[known](r)
		messaging.Handle(router, onlyIn[known](w))
	}
}

func onlyIn[T any](w *world) func(context.Context, T) error {
	return func(ctx context.Context, _ T) error {
		m, _ := messaging.FromContext(ctx)
		return w.effect(ctx, m)
	}
}

// A message that a release cannot read is stored as it came, with the messages behind it in its key, and
// the next release handles them in order. Nothing of it goes through the broker, and the operator's program
// knows no type at all.
func TestWhatAReleaseCannotReadIsHandledByTheNext(t *testing.T) {
	message := func(id, key, kind, payload string, version int) *messaging.Message {
		m := ordered(id, key)
		m.Type, m.Payload, m.SchemaVersion = kind, []byte(payload), version
		return m
	}
	w := newWorld(t)
	_, h := w.release(firstRelease(w))
	for _, m := range []*messaging.Message{
		message("1 fine", "bytes", "known", `{"n":1}`, 1),
		message("2 bytes", "bytes", "known", "\x00\xff{n:2}", 1),
		message("3 fine", "bytes", "known", `{"n":3}`, 1),
		message("1 type", "type", "news", `{ "n":1 }`, 1),
		message("2 fine", "type", "known", `{"n":2}`, 1),
		message("1 version", "version", "known", `{"n":1,"unit":"kg"}`, 2),
		message("2 fine", "version", "known", `{"n":2}`, 1),
	} {
		m.ID = m.AggregateID + " " + m.ID
		for range 2 {
			require.NoError(t, h.Handle(t.Context(), m), "settled: the broker is rid of it")
		}
	}
	require.Equal(t, []string{"bytes 1 fine"}, w.effects())
	got := map[string]string{}
	for _, d := range w.dead() {
		got[d.Envelope.ID] = string(d.Envelope.Payload)
		require.True(t, d.Holds)
	}
	require.Equal(t, map[string]string{"bytes 2 bytes": "\x00\xff{n:2}"}, got, "no build will ever read this")

	next, h := w.release(func(r *event.Registry, router *messaging.Router) {
		event.Register[knownV2](r, event.WithVersion(2), event.WithUpcaster(1, func(payload []byte) ([]byte, error) {
			// The mistake of some sender, which is understood by now.
			return bytes.Replace(payload, []byte("\x00\xff{n:"), []byte(`{"n":`), 1), nil
		}))
		event.Register[news](r)
		messaging.Handle(router, onlyIn[knownV2](w))
		messaging.Handle(router, onlyIn[news](w))
	})
	require.NoError(t, h.Handle(t.Context(), message("type 3 fine", "type", "known", `{"n":3}`, 1)), "it waits with the others")
	runParked(t, next)
	n, err := w.operator().Dead().ReplayAll(t.Context(), operator.DeadFilter{Consumer: "billing"}, ann, nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	w.awaitEffects(8)
	last := map[string]string{}
	for _, effect := range w.effects() {
		key := effect[:4]
		require.Greater(t, effect, last[key], "in order, and once")
		last[key] = effect
	}
	require.Len(t, w.effects(), 8)
	require.Empty(t, w.dead())
	require.Empty(t, w.keys())
}

// An old process receives what only the build that is being deployed knows: on the first try, from the parking table, in a batch, and under
// a lease.
func TestWhatOnlyALaterBuildKnowsIsNoDeadLetter(t *testing.T) {
	newer := func(id, key string) *messaging.Message {
		m := ordered(id, key)
		m.Type, m.SchemaVersion, m.Payload = "known", 2, []byte(`{}`)
		return m
	}
	type wrap func(box *inbox.Inbox, h messaging.Handler) messaging.Handler
	for name, wrapped := range map[string]wrap{
		"plain": func(box *inbox.Inbox, h messaging.Handler) messaging.Handler { return box.Wrap("billing", h) },
		"batch": func(box *inbox.Inbox, h messaging.Handler) messaging.Handler {
			return box.WrapBatch("billing", func(ctx context.Context, msgs []*messaging.Message) error {
				for _, m := range msgs {
					if err := h.Handle(ctx, m); err != nil {
						return err
					}
				}
				return nil
			})
		},
		"leased": func(box *inbox.Inbox, h messaging.Handler) messaging.Handler { return box.WrapLeased("billing", h) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var log lines
			box := inbox.New(w.units, &inbox.Config{
				Retry:        inbox.RetryPolicy{MaxAttempts: 1, Policy: retry.Policy{Delay: time.Millisecond, MaxDelay: 5 * time.Millisecond}},
				PollInterval: 20 * time.Millisecond,
				Telemetry:    telemetry.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))},
			})
			var calls atomic.Int64
			h := wrapped(box, countCalls(&calls, router(firstRelease(w))))
			msgs := []*messaging.Message{newer("1", "o1"), newer("2", "o1"), newer("1 of another key", "o2")}
			if batch, ok := h.(messaging.BatchHandler); ok && name == "batch" {
				require.NoError(t, batch.HandleBatch(t.Context(), msgs))
			} else {
				for _, m := range msgs {
					require.NoError(t, h.Handle(t.Context(), m), "settled: the broker is rid of it")
				}
			}
			runParked(t, box)
			const several = 10
			await.True(t, func() bool {
				require.Empty(t, w.dead())
				return calls.Load() > several
			}, "%d calls of the handler", several+1)
			require.Empty(t, w.dead())
			require.Equal(t, []string{"1", "2", "1 of another key"}, w.parked())
			require.Equal(t, 1, strings.Count(log.String(), "level=WARN"), "once for the type and the version, and not for each try:\n%s", log.String())
			require.Contains(t, log.String(), "type=known version=2")
		})
	}
}

// plainAndLeased are the two ways in which a handler of one message is wrapped.
func plainAndLeased(opts ...inbox.Option) map[string]func(*inbox.Inbox, messaging.Handler) messaging.Handler {
	return map[string]func(*inbox.Inbox, messaging.Handler) messaging.Handler{
		"plain": func(box *inbox.Inbox, h messaging.Handler) messaging.Handler { return box.Wrap("billing", h, opts...) },
		"leased": func(box *inbox.Inbox, h messaging.Handler) messaging.Handler {
			return box.WrapLeased("billing", h, opts...)
		},
	}
}

func TestMessageThatNoBuildKnowsIsADeadLetterInTheEnd(t *testing.T) {
	t.Parallel()
	for name, wrap := range plainAndLeased() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			box := w.hasty(func(c *inbox.Config) { c.Retry.DeployWait = time.Millisecond })
			m := ordered("1", "o1")
			m.Type = "never heard of"
			require.NoError(t, wrap(box, router(firstRelease(w))).Handle(t.Context(), m))
			require.Equal(t, []string{"1"}, w.parked())
			runParked(t, box)
			await.True(t, func() bool { return len(w.dead()) == 1 }, "a dead letter")
			require.Contains(t, w.dead()[0].Error, "RetryPolicy.DeployWait")
			require.Contains(t, w.dead()[0].Error, messaging.ErrNoHandler.Error())
		})
	}
}

// A message may have waited for a week behind another one, or failed for another reason, before a rollback makes it unknown.
func TestWaitForABuildCountsFromWhenTheMessageWasUnknown(t *testing.T) {
	t.Parallel()
	for name, wrap := range plainAndLeased() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			box := w.hasty(func(c *inbox.Config) { c.Retry.DeployWait = time.Hour })
			var calls atomic.Int64
			h := wrap(box, countCalls(&calls, router(firstRelease(w))))
			m := ordered("1", "o1")
			m.Type = "news"
			require.NoError(t, h.Handle(t.Context(), m))
			w.exec("UPDATE inbox SET processed_at = processed_at - interval '30 days'")
			w.exec("UPDATE inbox_parked SET parked_at = parked_at - interval '30 days'")
			runParked(t, box)
			await.True(t, func() bool { return calls.Load() > 3 || len(w.dead()) > 0 }, "four calls of the handler, or a dead letter")
			require.Empty(t, w.dead())
			w.exec("UPDATE inbox_parked SET unknown_since = unknown_since - interval '1 hour'")
			await.True(t, func() bool { return len(w.dead()) == 1 }, "a dead letter")
			require.Contains(t, w.dead()[0].Error, "RetryPolicy.DeployWait")
		})
	}
}

// ErrUnknownType may also be about an event that the handler emits, which no later deployment mends. An error that the
// handler calls permanent is permanent.
func TestWhatAHandlerCannotEmitIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]messaging.HandlerFunc{
		"not registered": func(ctx context.Context, _ *messaging.Message) error {
			u := uow.MustFromContext(ctx)
			u.Track(newInvoice("i1"))
			return nil
		},
		"permanent": func(context.Context, *messaging.Message) error {
			return messaging.Permanent(event.ErrUnknownType)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, &committed{})
			box := w.hasty(func(c *inbox.Config) { c.Retry.MaxAttempts = 2 })
			wrapped, m := box.Wrap("billing", h), ordered("1", "o1")
			await.True(t, func() bool { return wrapped.Handle(t.Context(), m) == nil }, "the message is settled")
			runParked(t, box)
			await.True(t, func() bool { return len(w.dead()) == 1 }, "a dead letter")
			require.Contains(t, w.dead()[0].Error, event.ErrUnknownType.Error())
		})
	}
}
