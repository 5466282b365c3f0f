package inbox_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/messaging"
)

// held is an inbox while another process hangs in a handler, for as long as the test needs.
func (w *world) held(m *messaging.Message) (box *inbox.Inbox, letGo func()) {
	w.t.Helper()
	entered, end := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	hanging := w.settledBox().Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		close(entered)
		<-end
		return w.effect(ctx, m)
	}))
	go func() { done <- hanging.Handle(context.WithoutCancel(w.t.Context()), m) }()
	<-entered
	over := false
	letGo = func() {
		if !over {
			over = true
			close(end)
			require.NoError(w.t, <-done)
		}
	}
	w.t.Cleanup(letGo)
	return w.hasty(func(c *inbox.Config) { c.CrashGuard, c.LockTimeout = -1, 20*time.Millisecond }), letGo
}

// within fails the test if fn waits for what only the test can end.
func within(t *testing.T, fn func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- fn() }()
	return await.Receive(t, done, "an end, although another process hangs")
}

func TestKeyThatIsHeldElsewhereIsPutOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box, letGo := w.held(ordered("hangs", "o1"))
	h := box.Wrap("billing", messaging.HandlerFunc(w.effect))
	for try := 1; try <= 3; try++ {
		m := ordered("behind", "o1")
		m.Attempt = try
		err := within(t, func() error { return h.Handle(t.Context(), m) })
		pause, asked := messaging.RetryDelay(err)
		require.True(t, asked, "the consumer has to come again: %v", err)
		require.Positive(t, pause)
	}
	require.Empty(t, column[int](t, w.db.DB, "SELECT attempts FROM inbox_attempt"), "it was not tried")
	require.NoError(t, h.Handle(t.Context(), ordered("other", "o2")))
	letGo()
	require.NoError(t, h.Handle(t.Context(), ordered("behind", "o1")))
	require.Equal(t, []string{"other", "hangs", "behind"}, w.effects())
}

func TestBatchGoesOnWithoutAKeyThatIsHeldElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box, letGo := w.held(ordered("hangs", "o1"))
	h := box.WrapBatch("billing", func(ctx context.Context, msgs []*messaging.Message) error {
		for _, m := range msgs {
			if err := w.effect(ctx, m); err != nil {
				return err
			}
		}
		return nil
	})
	msgs := []*messaging.Message{ordered("a", "o2"), ordered("behind", "o1"), ordered("b", "o3"), ordered("further behind", "o1")}
	err := within(t, func() error { return h.HandleBatch(t.Context(), msgs) })
	partly, ok := errors.AsType[*messaging.BatchError](err)
	require.True(t, ok, "%v", err)
	require.Len(t, partly.Failed, 2)
	_, asked := messaging.RetryDelay(partly.Failed[1])
	require.True(t, asked)
	require.ErrorIs(t, partly.Failed[3], messaging.ErrBehind)
	letGo()
	require.NoError(t, h.Handle(t.Context(), msgs[1]))
	require.Equal(t, []string{"a", "b", "hangs", "behind"}, w.effects())
}

// A copy of a message without order waits for the index, and for no key.
func TestCopyThatIsHeldElsewhereIsPutOff(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]func(box *inbox.Inbox, h messaging.Handler) messaging.Handler{
		"without a key": func(box *inbox.Inbox, h messaging.Handler) messaging.Handler { return box.Wrap("billing", h) },
		"unordered": func(box *inbox.Inbox, h messaging.Handler) messaging.Handler {
			return box.Wrap("billing", h, inbox.Unordered())
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			box, letGo := w.held(unordered("hangs"))
			h := h(box, messaging.HandlerFunc(w.effect))
			putOff := func(err error) {
				t.Helper()
				_, asked := messaging.RetryDelay(err)
				require.True(t, asked, "the consumer has to come again: %v", err)
			}
			putOff(within(t, func() error { return h.Handle(t.Context(), unordered("hangs")) }))
			err := within(t, func() error {
				return h.(messaging.BatchHandler).HandleBatch(t.Context(), []*messaging.Message{unordered("a"), unordered("hangs"), unordered("b")})
			})
			partly, ok := errors.AsType[*messaging.BatchError](err)
			require.True(t, ok, "%v", err)
			require.Len(t, partly.Failed, 1)
			putOff(partly.Failed[1])
			letGo()
			require.NoError(t, h.Handle(t.Context(), unordered("hangs")))
			require.Equal(t, []string{"a", "b", "hangs"}, w.effects())
		})
	}
}

// The functions leave the session's settings as they were: how long a handler waits for locks is its own business.
func TestEnteringLeavesTheLockTimeoutAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.settledBox()
	var got []string
	h := box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error {
		got = append(got, column[string](t, w.units.DB(ctx), "SHOW lock_timeout")...)
		return nil
	})).(messaging.BatchHandler)
	require.NoError(t, h.Handle(t.Context(), unordered("1")))
	require.NoError(t, h.Handle(t.Context(), ordered("2", "o1")))
	require.NoError(t, h.HandleBatch(t.Context(), []*messaging.Message{unordered("3"), ordered("4", "o1")}))
	require.Equal(t, []string{"0", "0", "0", "0"}, got)
}
