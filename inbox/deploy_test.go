package inbox_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/messaging"
)

// news is a type that the first release has never heard of.
type news struct {
	N int `json:"n"`
}

func (news) EventType() string { return "news" }

// knownV2 is the second version of a type of which the first release knows the first.
type knownV2 struct {
	N    int    `json:"n"`
	Unit string `json:"unit"`
}

func (knownV2) EventType() string { return "known" }

// release is the service's box and handler, over a registry of its own.
func (w *world) release(register func(*event.Registry, *messaging.Router)) (*inbox.Inbox, messaging.Handler) {
	registry := event.NewRegistry()
	router := messaging.NewRouter(registry)
	register(registry, router)
	box := w.hasty(nil)
	return box, box.Wrap("billing", router)
}

func onlyIn[T any](w *world) func(context.Context, T) error {
	return func(ctx context.Context, _ T) error {
		m, _ := messaging.FromContext(ctx)
		return w.effect(ctx, m)
	}
}

// What a release cannot read is kept as it came, with what is behind it in its key, and handled by the next release, in
// order. Nothing of it goes through the broker, and the operator's program knows no type at all.
func TestWhatAReleaseCannotReadIsHandledByTheNext(t *testing.T) {
	message := func(id, key, kind, payload string, version int) *messaging.Message {
		m := ordered(id, key)
		m.Type, m.Payload, m.SchemaVersion = kind, []byte(payload), version
		return m
	}
	w := newWorld(t)
	_, h := w.release(func(r *event.Registry, router *messaging.Router) {
		event.Register[known](r)
		messaging.Handle(router, onlyIn[known](w))
	})
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
	require.Equal(t, map[string]string{
		"bytes 2 bytes": "\x00\xff{n:2}", "type 1 type": `{ "n":1 }`, "version 1 version": `{"n":1,"unit":"kg"}`,
	}, got)

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
	n, err := w.operator().ReplayAll(t.Context(), inbox.DeadFilter{Consumer: "billing"}, ann, nil)
	require.NoError(t, err)
	require.EqualValues(t, 3, n)
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
