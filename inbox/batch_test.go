package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

// settledBox is an inbox whose first messages are not counted before they are tried, so that batches are batches.
func (w *world) settledBox() *inbox.Inbox {
	return w.hasty(func(c *inbox.Config) { c.CrashGuard = -1 })
}

// batches notes the ids that a handler of batches was given.
type batches struct{ got [][]string }

func (b *batches) note(msgs []*messaging.Message) {
	var ids []string
	for _, m := range msgs {
		ids = append(ids, m.ID)
	}
	b.got = append(b.got, ids)
}

func TestBatchIsOneUnitOfWhatIsFresh(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.settledBox()
	var seen batches
	h := box.WrapBatch("billing", func(ctx context.Context, msgs []*messaging.Message) error {
		seen.note(msgs)
		for _, m := range msgs {
			require.NoError(t, w.effect(ctx, m))
		}
		return nil
	})
	known := ordered("known", "o1")
	require.NoError(t, h.Handle(t.Context(), known))
	foreign := ordered("4711/7", "o2")
	other := ordered("a", "o1")
	other.TenantID = "t2"
	require.NoError(t, h.HandleBatch(t.Context(), []*messaging.Message{
		ordered("a", "o1"), known, unordered("b"), foreign, ordered("a", "o1"), other, foreign, unordered("c"),
	}))
	require.Equal(t, [][]string{{"known"}, {"a", "b", "4711/7", "a", "c"}}, seen.got, "a copy in the batch is a duplicate, another tenant's message is not")
	require.Equal(t, 6, w.entries())
	require.NoError(t, h.HandleBatch(t.Context(), []*messaging.Message{known, foreign}))
	require.Len(t, seen.got, 2, "nothing was fresh")
}

func TestFailedBatchIsHandledOneByOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.settledBox()
	handle := func(ctx context.Context, m *messaging.Message) error {
		if err := w.effect(ctx, m); err != nil || m.ID != "bad" {
			return err
		}
		return errNotNow
	}
	for name, h := range map[string]messaging.Handler{
		"handler": box.Wrap("a", messaging.HandlerFunc(handle)),
		"batches": box.WrapBatch("b", func(ctx context.Context, msgs []*messaging.Message) error {
			for _, m := range msgs {
				if err := handle(ctx, m); err != nil {
					return err
				}
			}
			return nil
		}),
	} {
		t.Run(name, func(t *testing.T) {
			before := len(w.effects())
			err := h.(messaging.BatchHandler).HandleBatch(t.Context(), []*messaging.Message{
				ordered("a", "o1"), ordered("bad", "o2"), ordered("behind", "o2"), ordered("b", "o1"), unordered("c"),
			})
			var partly *messaging.BatchError
			require.ErrorAs(t, err, &partly)
			require.Len(t, partly.Failed, 2)
			require.ErrorIs(t, partly.Failed[1], errNotNow)
			require.ErrorIs(t, partly.Failed[2], messaging.ErrBehind)
			require.Equal(t, []string{"a", "b", "c"}, w.effects()[before:])
		})
	}
}

func TestBatchParksWhatIsBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.settledBox()
	fail := true
	h := box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		if m.ID == "bad" && fail {
			return messaging.Permanent(errNotNow)
		}
		return w.effect(ctx, m)
	})).(messaging.BatchHandler)
	require.NoError(t, h.Handle(t.Context(), ordered("bad", "o1")))
	require.NoError(t, h.HandleBatch(t.Context(), []*messaging.Message{
		ordered("1", "o1"), ordered("x", "o2"), ordered("2", "o1"), ordered("3", "o1"),
	}))
	require.Equal(t, []string{"x"}, w.effects())
	require.Equal(t, []string{"1", "2", "3"}, w.parked())
}

func TestMessagesOfABatchHaveContextsOfTheirOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.settledBox().Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		in, _ := messaging.FromContext(ctx)
		require.Same(t, m, in)
		require.Equal(t, m.ID, event.MetadataFrom(ctx)[event.CausationID])
		require.Equal(t, "t1", event.TenantFrom(ctx))
		return nil
	})).(messaging.BatchHandler)
	require.NoError(t, h.HandleBatch(t.Context(), []*messaging.Message{ordered("a", "o1"), ordered("b", "o1")}))
	require.Equal(t, 2, w.entries())
}

// Two processes have batches of the same keys, in opposite orders, and wait for a third process that is in the middle of them.
func TestBatchesDoNotLockEachOtherOut(t *testing.T) {
	t.Parallel()
	for name, message := range map[string]func(n int) *messaging.Message{
		"keys":    func(n int) *messaging.Message { return ordered(fmt.Sprintf("m%02d", n), fmt.Sprint("o", n)) },
		"entries": func(n int) *messaging.Message { return unordered(fmt.Sprintf("m%02d", n)) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.units = uow.New(w.db.DB, &uow.Config{Source: "test", Telemetry: telemetry.Config{Logger: quiet()}, Retry: uow.RetryConfig{MaxAttempts: -1}})
			var batches [2][]*messaging.Message
			for n := range 20 {
				batches[0], batches[1] = append(batches[0], message(n)), append(batches[1], message(19-n))
			}
			batches[0], batches[1] = append(batches[0], message(21)), append(batches[1], message(22)) // fresh, whichever is first
			errs := make(chan error, len(batches))
			var calls atomic.Int64
			third := w.settledBox().Wrap("billing", messaging.HandlerFunc(func(context.Context, *messaging.Message) error {
				for _, msgs := range batches {
					h := w.settledBox().WrapBatch("billing", func(ctx context.Context, msgs []*messaging.Message) error {
						calls.Add(1)
						for _, m := range msgs {
							if err := w.effect(ctx, m); err != nil {
								return err
							}
						}
						return nil
					})
					go func() { errs <- h.HandleBatch(t.Context(), msgs) }()
				}
				w.awaitWaiters(2)
				return errNotNow
			}))
			require.ErrorIs(t, third.Handle(t.Context(), message(10)), errNotNow)
			require.NoError(t, errors.Join(<-errs, <-errs))
			require.Len(t, w.effects(), 22)
			require.EqualValues(t, 2, calls.Load(), "or a batch failed, and its messages were handled alone")
		})
	}
}

func TestDurableMessagesAreStoredFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.settledBox()
	h := box.Wrap("billing", messaging.HandlerFunc(w.effect), inbox.StoreFirst()).(messaging.BatchHandler)
	require.NoError(t, h.Handle(t.Context(), ordered("1", "o1")))
	require.NoError(t, h.HandleBatch(t.Context(), []*messaging.Message{
		ordered("2", "o1"), ordered("3", "o1"), unordered("u1"), ordered("1", "o1"), ordered("4", "o1"), unordered("u2"), ordered("5", "o2"),
	}))
	require.Empty(t, w.effects())
	require.Equal(t, []string{"1", "2", "3", "u1", "4", "u2", "5"}, w.parked())
	require.Len(t, w.keys(), 4)
	runParked(t, box)
	w.awaitEffects(7)
	var ofKey []string
	for _, id := range w.effects() {
		if id <= "4" {
			ofKey = append(ofKey, id)
		}
	}
	require.Equal(t, []string{"1", "2", "3", "4"}, ofKey)
	require.Empty(t, w.keys())
	require.NoError(t, h.Handle(t.Context(), ordered("1", "o1")), "a copy")
	require.Empty(t, w.parked())
}

// However many keys a batch has, a transaction takes few locks: the locks of all transactions share a table of the server.
func TestBatchOfManyKeysTakesFewLocksAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const many, most = 220, 100
	var got []string
	h := w.settledBox().WrapBatch("billing", func(ctx context.Context, msgs []*messaging.Message) error {
		const locks = "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'"
		require.LessOrEqual(t, column[int](t, w.units.DB(ctx), locks)[0], most)
		for _, m := range msgs {
			got = append(got, m.ID)
			if m.ID == "m110" || m.ID == "behind" {
				return errNotNow
			}
		}
		return nil
	})
	var msgs []*messaging.Message
	var want []string
	for n := range many {
		msgs = append(msgs, ordered(fmt.Sprintf("m%03d", n), fmt.Sprint("o", n)))
		if n != 110 {
			want = append(want, msgs[n].ID)
		}
	}
	msgs = append(msgs, ordered("behind", "o110"), ordered("also of o1", "o1"))
	err := h.HandleBatch(t.Context(), msgs)
	partly, ok := errors.AsType[*messaging.BatchError](err)
	require.True(t, ok, "%v", err)
	require.Len(t, partly.Failed, 2)
	require.ErrorIs(t, partly.Failed[110], errNotNow)
	require.ErrorIs(t, partly.Failed[many], messaging.ErrBehind)
	require.NotContains(t, got, "behind")
	require.Equal(t, len(want)+1, w.entries())
}
