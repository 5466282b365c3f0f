package inbox_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/messaging"
)

func TestReplayHandlesADeadLetterOnce(t *testing.T) {
	w := newWorld(t)
	m := ordered(newID(t), "o1")
	require.NoError(t, w.box.Wrap("billing", gaveUp()).Handle(t.Context(), m))
	key := w.dead()[0].Key

	require.ErrorIs(t, w.box.Replay(t.Context(), key, messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		require.NoError(t, w.effect(ctx, m))
		return errNotNow
	})), errNotNow)
	require.Len(t, w.dead(), 1, "it failed and stays")
	require.Empty(t, w.effects())

	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() {
			errs[i] = w.box.Replay(t.Context(), key, messaging.HandlerFunc(func(ctx context.Context, got *messaging.Message) error {
				require.Equal(t, m.ID, event.MetadataFrom(ctx)[event.CausationID])
				require.Equal(t, m.Payload, got.Payload)
				require.Equal(t, 2, got.Attempt)
				return w.effect(ctx, got)
			}))
		})
	}
	wg.Wait()
	failed := 0
	for _, err := range errs {
		if err != nil {
			require.ErrorIs(t, err, inbox.ErrNotDead)
			failed++
		}
	}
	require.Equal(t, 3, failed)
	require.Equal(t, []string{m.ID}, w.effects())
	require.Empty(t, w.dead())
	require.Equal(t, 1, w.entries())

	require.NoError(t, w.box.Wrap("billing", messaging.HandlerFunc(w.effect)).Handle(t.Context(), m))
	require.Len(t, w.effects(), 1, "a copy is a duplicate still")
}

// The wrapped handler would find the entry, do nothing, and the dead letter would be gone.
func TestReplayTakesAWrappedHandlerToo(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, w.box.Wrap("billing", gaveUp()).Handle(t.Context(), unordered("x")))
	require.NoError(t, w.box.Replay(t.Context(), w.dead()[0].Key, w.box.Wrap("billing", messaging.HandlerFunc(w.effect))))
	require.Equal(t, []string{"x"}, w.effects())
}

func TestReplayAfterTheEntryExpired(t *testing.T) {
	w := newWorld(t)
	m := unordered("x")
	require.NoError(t, w.box.Wrap("billing", gaveUp()).Handle(t.Context(), m))
	_, err := w.db.ExecContext(t.Context(), "DELETE FROM inbox")
	require.NoError(t, err)
	h := messaging.HandlerFunc(w.effect)
	require.NoError(t, w.box.Replay(t.Context(), w.dead()[0].Key, h))
	require.NoError(t, w.box.Wrap("billing", h).Handle(t.Context(), m))
	require.Equal(t, []string{"x"}, w.effects())
}

func TestReplayOfAMessageWithInvalidNames(t *testing.T) {
	w := newWorld(t)
	m := ordered("x\x00", "o\xff")
	m.TenantID, m.Source = "t\xff", "s\xff"
	require.NoError(t, w.box.Wrap("billing", gaveUp()).Handle(t.Context(), m))
	require.NoError(t, w.box.Replay(t.Context(), w.dead()[0].Key, messaging.HandlerFunc(w.effect)))
	require.Equal(t, []string{"x\uFFFD"}, w.effects())
	require.Equal(t, 1, w.entries())
}

func TestReplayRefusesWhatIsNoKey(t *testing.T) {
	w := newWorld(t)
	require.ErrorContains(t, w.box.Replay(t.Context(), inbox.DeadKey{MessageKey: "4711"}, gaveUp()), "not a UUID")
	err := w.box.Replay(t.Context(), inbox.DeadKey{MessageKey: newID(t), Consumer: "billing"}, gaveUp())
	require.ErrorIs(t, err, inbox.ErrNotDead)
}
