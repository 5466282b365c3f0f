package inbox_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/readmodel"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
)

// kinds has a consumer of each kind, and the consumer free, which is never paused. While it refuses, all handlers fail.
type kinds struct {
	*world

	refuses atomic.Bool
	wrong   chan error // the errors of statements that can never work
}

// misfits is a log that passes on the errors of statements that PostgreSQL does not understand. The inbox tries them again without end.
type misfits struct {
	slog.Handler

	errs chan<- error
}

// Enabled reports true, because the discarding handler would report false.
func (misfits) Enabled(context.Context, slog.Level) bool { return true }

// Handle looks for an error of class 42: wrong syntax, or a name that does not exist (PostgreSQL, Appendix A).
func (m misfits) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if err, is := a.Value.Any().(error); is && strings.HasPrefix(pgerr.Code(err), "42") {
			select {
			case m.errs <- err:
			default: // one is enough
			}
		}
		return true
	})
	return nil
}

func (m misfits) WithAttrs([]slog.Attr) slog.Handler { return m }
func (m misfits) WithGroup(string) slog.Handler      { return m }

// await waits until ok returns true, and ends the test if a statement is wrong.
func (k *kinds) await(ok func() bool, what string) {
	k.t.Helper()
	await.True(k.t, func() bool {
		select {
		case err := <-k.wrong:
			require.NoError(k.t, err, "a statement of the inbox is wrong")
		default:
		}
		return ok()
	}, what)
}

// paused are the names of the consumers that are paused.
func (k *kinds) paused() []string { return []string{"batch", "leased", "model", "plain"} }

// consumers returns an inbox with all of the consumers, and the read model of the consumer model.
func (k *kinds) consumers() (*inbox.Inbox, *readmodel.Model) {
	box := k.hasty(func(c *inbox.Config) { c.Telemetry.Logger = slog.New(misfits{quiet().Handler(), k.wrong}) })
	effect := func(consumer string) messaging.HandlerFunc {
		return func(ctx context.Context, m *messaging.Message) error {
			if k.refuses.Load() {
				return errNotNow
			}
			_, err := k.units.DB(ctx).NewRaw("INSERT INTO effects (what) VALUES (?)", consumer+"/"+m.ID).Exec(ctx)
			return err
		}
	}
	model := readmodel.New(box, "model", effect("model"))
	require.NoError(k.t, box.Consume("order", "free", effect("free")))
	require.NoError(k.t, box.Consume("order", "plain", effect("plain")))
	require.NoError(k.t, box.Consume("order", "leased", effect("leased"), inbox.Leased()))
	require.NoError(k.t, box.Consume("order", "model", model))
	require.NoError(k.t, box.ConsumeBatch("order", "batch", func(ctx context.Context, msgs []*messaging.Message) error {
		for _, m := range msgs {
			if err := effect("batch")(ctx, m); err != nil {
				return err
			}
		}
		return nil
	}))
	return box, model
}

// awaitPaused waits until the process reports that it has noticed the pauses.
func (k *kinds) awaitPaused() {
	k.t.Helper()
	k.await(func() bool {
		list, err := k.operator().State().Consumers(k.t.Context())
		require.NoError(k.t, err)
		var names []string
		for _, c := range list {
			if len(c.Topics) == 1 && len(c.Topics[0].Processes) == 1 && c.Topics[0].Processes[0].State == "paused" {
				names = append(names, c.Consumer)
			}
		}
		return slices.Equal(names, k.paused())
	}, "all but one consumer are paused")
}

// A pause outlasts the process. It holds for each kind of handler, for parked messages and for messages at the broker, and for the present
// generation of a read model. After it each consumer handles all messages in their order.
func TestPauseOfEachKindOutlastsTheProcess(t *testing.T) {
	t.Parallel()
	k := &kinds{world: newWorld(t), wrong: make(chan error, 1)}
	broker := memory.New(nil)
	t.Cleanup(func() { require.NoError(t, broker.Close()) })
	publish := func(id, key string) {
		require.NoError(t, broker.Publish(t.Context(), []event.Envelope{ordered(id, key).Envelope}))
	}
	box, model := k.consumers()
	stop := start(t, box, broker)
	require.NoError(t, model.Rebuild(t.Context(), k.clear, kept(1, nil), nil))
	k.refuses.Store(true)
	publish("1", "o1")
	publish("2", "o1")
	k.await(func() bool { return k.count("inbox_parked") == 2*(len(k.paused())+1) }, "both messages are parked for each consumer")
	require.NotEmpty(t, column[string](t, k.db.DB, "SELECT consumer FROM inbox_parked WHERE consumer LIKE 'model@%'"))
	handles := k.operator().Consumers()
	for _, name := range k.paused() {
		require.NoError(t, handles.Pause(t.Context(), name, 0, ann))
	}
	k.awaitPaused()
	stop()

	due := func() []string {
		return column[string](t, k.db.DB, "SELECT consumer || due_at FROM inbox_key WHERE consumer <> 'free' ORDER BY consumer")
	}
	before := due()
	k.refuses.Store(false)
	publish("3", "o2")
	box, _ = k.consumers()
	start(t, box, broker)
	k.awaitPaused()
	k.await(func() bool { return len(k.begunWith("free/")) == 3 }, "the other consumer goes on")
	require.Len(t, k.effects(), 3, "only those of the consumer free")
	require.Equal(t, before, due(), "no key of a paused consumer was taken")
	for _, name := range k.paused() {
		require.NoError(t, handles.Resume(t.Context(), name, ann))
	}
	k.await(func() bool { return len(k.effects()) >= 3*(len(k.paused())+1) && len(k.parked()) == 0 }, "all messages are handled")
	for _, name := range k.paused() {
		handled := k.begunWith(name + "/")
		require.ElementsMatch(t, []string{name + "/1", name + "/2", name + "/3"}, handled)
		require.Less(t, slices.Index(handled, name+"/1"), slices.Index(handled, name+"/2"))
	}
}
