package inbox_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox/readmodel"
	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
)

// A consumer is listed since it ran for the first time, and until it is given up.
func TestConsumersAreListed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.hasty(nil)
	box.Wrap("billing", messaging.HandlerFunc(w.effect))
	box.Wrap("shipping", messaging.HandlerFunc(w.effect))
	stop := runParked(t, box)
	consumers := func() []state.Consumer {
		list, err := w.operator().State().Consumers(t.Context())
		require.NoError(t, err)
		return list
	}
	await.True(t, func() bool { return len(consumers()) == 2 }, "it is written down that they run")
	stop()
	_, err := w.db.ExecContext(t.Context(), "UPDATE inbox_consumer SET beat_at = beat_at - interval '4 minutes' WHERE consumer = 'billing'")
	require.NoError(t, err)
	list := consumers()
	require.Equal(t, []any{"billing", false, "shipping", true}, []any{list[0].Consumer, list[0].Runs, list[1].Consumer, list[1].Runs})
	require.False(t, list[1].SeenAt.IsZero())
	require.NoError(t, w.operator().Consumers().Forget(t.Context(), "billing", ann))
	require.Len(t, consumers(), 1)
}

// A rebuild is seen from a process that has no handler: while it runs, when it has failed, and when it is done.
func TestReadModelsAreListed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	list, err := readmodel.List(t.Context(), w.operator())
	require.NoError(t, err)
	require.Empty(t, list)
	summary := readmodel.New(w.box, "summary", messaging.HandlerFunc(w.effect))
	require.NoError(t, summary.Handle(t.Context(), ordered(newID(t), "o1")))
	seen := func(ctx context.Context) readmodel.Status {
		list, err := readmodel.List(ctx, w.operator())
		require.NoError(t, err)
		require.Len(t, list, 1)
		known, err := summary.Status(ctx)
		require.NoError(t, err)
		require.Equal(t, known, list[0])
		return list[0]
	}
	require.False(t, seen(t.Context()).Rebuilding)
	errStop := errors.New("stop")
	empty := func(context.Context, *uow.Unit) error { return nil }
	history := func(ctx context.Context, _ string, to func(context.Context, []event.Envelope, string) error) error {
		require.NoError(t, to(ctx, []event.Envelope{ordered(newID(t), "o2").Envelope}, "half"))
		require.NoError(t, summary.Handle(ctx, ordered(newID(t), "o3")))
		s := seen(ctx)
		require.Equal(t, []any{true, true, "half", int64(1), int64(1)}, []any{s.Rebuilding, s.Running, s.Checkpoint, s.Events, s.Waiting})
		return errStop
	}
	require.ErrorIs(t, summary.Rebuild(t.Context(), empty, history, nil), errStop)
	s := seen(t.Context())
	require.Equal(t, []any{true, false, int64(1), "summary@1"}, []any{s.Rebuilding, s.Running, s.Generation, s.Consumer})
	require.NoError(t, summary.Resume(t.Context(), func(context.Context, string, func(context.Context, []event.Envelope, string) error) error {
		return nil
	}, nil))
	require.False(t, seen(t.Context()).Rebuilding)
}
