package inbox_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox/consumers"
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

// Only a number at the end of a name makes it a generation of a read model. Another "@" belongs to the name of the consumer.
func TestNameWithAnAtIsAConsumer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	handles := w.operator().Consumers()
	w.exec("INSERT INTO inbox_consumer (consumer) VALUES ('mail@eu'), ('view@2'), ('feed@3/live')")
	require.ErrorIs(t, handles.Pause(t.Context(), "mail", 0, ann), consumers.ErrUnknown)
	for _, name := range []string{"mail@eu", "view"} {
		require.NoError(t, handles.Pause(t.Context(), name, 0, ann))
		require.NoError(t, handles.Resume(t.Context(), name, ann))
	}
	w.exec("INSERT INTO inbox_key (consumer, key_lock, tenant_id, state, due_at) " +
		"VALUES ('mail@eu', 1, 't', 'WAITING', now()), ('view@2', 2, 't', 'WAITING', now())")
	w.exec("INSERT INTO inbox_process (consumer, topic, process, name, state, since, unsettled, seen_until) " +
		"SELECT u, 'order', gen_random_uuid(), 'p', 'STORED', now(), 0, now() + interval '1 hour' FROM unnest('{mail@eu,view}'::text[]) u")
	w.exec("UPDATE inbox_consumer SET stopped_at = beat_at")
	absent, err := w.box.State().Absent(t.Context())
	require.NoError(t, err)
	require.Empty(t, absent, "another process runs them")

	box := w.hasty(nil)
	require.NoError(t, box.Consume("order", "post@eu", messaging.HandlerFunc(w.effect)))
	listed := func() (c state.Consumer) {
		list, err := w.operator().State().Consumers(t.Context())
		require.NoError(t, err)
		for n := range list {
			if list[n].Consumer == "post@eu" {
				c = list[n]
			}
		}
		return c
	}
	stop := start(t, box, newCuttable(t))
	await.True(t, func() bool { c := listed(); return c.Runs && len(c.Topics) > 0 && len(c.Topics[0].Processes) > 0 }, "it runs")
	await.True(t, func() bool {
		var beats bool // the end of a consumer without a beat is not recorded
		require.NoError(t, w.db.QueryRow("SELECT beat_at IS NOT NULL FROM inbox_consumer WHERE consumer = 'post@eu'").Scan(&beats))
		return beats
	}, "its first beat")
	stop()
	require.True(t, listed().Stopped)
	w.exec("INSERT INTO inbox_key (consumer, key_lock, tenant_id, state, due_at) VALUES ('post@eu', 1, 't', 'WAITING', now())")
	w.exec("UPDATE inbox_consumer SET beat_at = stopped_at + interval '2 seconds' WHERE consumer = 'post@eu'")
	require.True(t, listed().Stopped, "the server has stored the last beat after the end")
	absent, err = w.box.State().Absent(t.Context())
	require.NoError(t, err)
	require.Contains(t, absent, "post@eu")
}
