package inbox_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/step"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

type receipt struct {
	Number int64  `json:"number"`
	Text   string `json:"text"`
}

func TestRetrySkipsTheStepsThatAreDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	want := receipt{1<<62 + 1, "a\x00\u2028<ü"}
	var o outside
	fail := true
	h := w.box.WrapLeased("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		got, err := step.Call(ctx, "charge", func(context.Context, string) (receipt, error) {
			o.call("charge")
			return want, nil
		})
		require.NoError(t, err)
		require.Equal(t, want, got)
		_, err = step.Call(ctx, "mail", func(context.Context, string) (*receipt, error) {
			o.call("mail")
			if fail {
				return nil, errNotNow
			}
			return nil, nil
		})
		return err
	}))
	m := ordered(newID(t), "o1")
	require.ErrorIs(t, h.Handle(t.Context(), m), errNotNow)
	require.Equal(t, []string{"charge"}, w.steps())
	fail = false
	require.NoError(t, h.Handle(t.Context(), m))
	require.Equal(t, []string{"charge", "mail", "mail"}, o.list(), "only the one that failed was made twice")
	w.nothingLeft()
}

func TestStepsOfOneMessageAreNotThoseOfAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var o outside
	failing := messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		return errors.Join(o.step(ctx, "call"), errNotNow)
	})
	id := newID(t)
	other := ordered(id, "o1")
	other.TenantID = "t2"
	elsewhere := ordered(id, "o1")
	elsewhere.Source = "warehouse"
	billing, shipping := w.box.WrapLeased("billing", failing), w.box.WrapLeased("shipping", failing)
	for range 2 {
		for _, m := range []*messaging.Message{ordered(id, "o1"), ordered(newID(t), "o1"), other, elsewhere} {
			require.ErrorIs(t, billing.Handle(t.Context(), m), errNotNow)
		}
		require.ErrorIs(t, shipping.Handle(t.Context(), ordered(id, "o1")), errNotNow)
	}
	require.Len(t, o.list(), 6)
}

// The other side takes two calls for one if they have the same key.
func TestKeysForTheOtherSide(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	seen := map[string]string{} // key -> what it is for
	note := func(what, key string) {
		require.Regexp(t, "^[0-9a-f]{32}$", key)
		if was, known := seen[key]; known {
			require.Equal(t, was, what)
		}
		for other, was := range seen {
			require.False(t, was == what && other != key, "%s has another key in another try", what)
		}
		seen[key] = what
	}
	id := newID(t)
	for range 2 {
		for consumer, wrap := range map[string]func(string, messaging.Handler, ...inbox.Option) messaging.Handler{
			"leased": w.box.WrapLeased, "in a unit": w.box.Wrap,
		} {
			for _, tenant := range []string{"t1", "t2"} {
				h := wrap(consumer, messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
					what := consumer + "/" + m.TenantID
					note(what, inbox.Key(ctx))
					if consumer == "leased" {
						for _, name := range []string{"a", "b"} {
							_, err := step.Call(ctx, name, func(ctx context.Context, key string) (int, error) {
								note(what, inbox.Key(ctx))
								note(what+"/"+name, key)
								return 0, errNotNow
							})
							require.ErrorIs(t, err, errNotNow)
						}
					}
					return errNotNow
				}))
				m := ordered(id, "o1")
				m.TenantID = tenant
				require.ErrorIs(t, h.Handle(t.Context(), m), errNotNow)
			}
		}
	}
	require.Len(t, seen, 2*1+2*3)
	require.Empty(t, inbox.Key(t.Context()))
	require.Empty(t, inbox.Key(messaging.NewContext(t.Context(), ordered(id, "o1"))), "of no consumer")
}

// The key is part of what others have stored. It never changes.
func TestKeyStaysTheSameOverReleases(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var key, ofStep string
	h := w.box.WrapLeased("billing", messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) (err error) {
		key = inbox.Key(ctx)
		_, err = step.Call(ctx, "mail", func(_ context.Context, k string) (int, error) { ofStep = k; return 0, nil })
		return err
	}))
	require.NoError(t, h.Handle(t.Context(), ordered("4711", "o1")))
	require.Equal(t, "e8506f87f3d97e3d8655ae85878d3e33", key)
	require.Equal(t, "d1d2480dd8ae8611be11c77756f50045", ofStep)
}

func TestKeyOfParkedMessagesAndOfBatches(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.hasty(func(c *inbox.Config) { c.Retry.Tries = 1 })
	keys := make(chan string, 2)
	h := box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		keys <- inbox.Key(ctx)
		if m.Attempt == 1 {
			return errNotNow
		}
		return w.effect(ctx, m)
	}))
	m := ordered("m", "o1")
	require.NoError(t, h.Handle(t.Context(), m))
	runParked(t, box)
	w.awaitEffects(1)
	first, second := <-keys, <-keys
	require.NotEmpty(t, first)
	require.Equal(t, first, second)

	var bulk []string
	b := w.box.WrapBatch("bulk", func(ctx context.Context, msgs []*messaging.Message) error {
		for _, m := range msgs {
			bulk = append(bulk, inbox.Key(messaging.NewContext(ctx, m)))
		}
		return nil
	})
	require.NoError(t, b.HandleBatch(t.Context(), []*messaging.Message{ordered("a", "o1"), ordered("b", "o1")}))
	require.NoError(t, b.Handle(t.Context(), ordered("c", "o1")))
	require.Len(t, bulk, 3)
	require.NotContains(t, bulk, "")
	require.NotEqual(t, bulk[0], bulk[1])
}

func TestStepIsRefusedWhereItCannotKeepItsPromise(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	never := func(context.Context, string) (int, error) {
		require.Fail(t, "it was called")
		return 0, nil
	}
	_, err := step.Call(t.Context(), "a", never)
	require.ErrorContains(t, err, "outside of a handler under a lease")
	inUnit := w.box.Wrap("in a unit", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		_, err := step.Call(ctx, "a", never)
		return err
	}))
	require.ErrorContains(t, inUnit.Handle(t.Context(), ordered("m", "o1")), "outside of a handler under a lease")

	h := w.box.WrapLeased("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		for _, name := range []string{"", "a\x00"} {
			_, err := step.Call(ctx, name, never)
			require.ErrorContains(t, err, "the name")
		}
		_, err := step.Call(ctx, "once", func(ctx context.Context, _ string) (int, error) {
			_, err := step.Call(ctx, "once", never)
			require.ErrorContains(t, err, "used before", "not at the same time either")
			return 0, nil
		})
		require.NoError(t, err)
		_, err = step.Call(ctx, "once", never)
		require.ErrorContains(t, err, "used before", "a loop would be one call")
		err = inbox.StepInUnit(ctx, "unit", func(ctx context.Context, _ *uow.Unit) error {
			_, err := step.Call(ctx, "within", never)
			require.ErrorContains(t, err, "within a unit of work")
			return inbox.StepInUnit(ctx, "within", func(context.Context, *uow.Unit) error { return nil })
		})
		require.ErrorContains(t, err, "within a unit of work")
		ended, end := context.WithCancelCause(ctx)
		end(errNotNow)
		_, err = step.Call(ended, "too late", never)
		require.ErrorIs(t, err, errNotNow)
		return nil
	}))
	require.NoError(t, h.Handle(t.Context(), ordered("m", "o1")))
}

// A goroutine that the handler has left behind, or a context that it gave away.
func TestStepAfterTheHandlerIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	kept := make(chan context.Context, 1)
	h := w.box.WrapLeased("billing", messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error {
		kept <- context.WithoutCancel(ctx)
		return nil
	}))
	require.NoError(t, h.Handle(t.Context(), ordered("m", "o1")))
	_, err := step.Call(<-kept, "late", func(context.Context, string) (int, error) { return 0, nil })
	require.ErrorIs(t, err, inbox.ErrLeaseLost)
	require.Empty(t, w.steps())
}

func TestResultThatIsNoJSONIsNotTriedAgainAndAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var o outside
	h := w.box.WrapLeased("billing", messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error {
		_, err := step.Call(ctx, "call", func(context.Context, string) (func(), error) {
			o.call("call")
			return func() {}, nil
		})
		return err
	}))
	require.NoError(t, h.Handle(t.Context(), ordered("m", "o1")))
	require.Contains(t, w.dead()[0].Error, `Call "call": encode`)
	require.Equal(t, []string{"call"}, o.list())
}

// A release has changed the type of a result while a message was between two tries.
func TestResultOfAnotherTypeMakesADeadLetter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := ordered("m", "o1")
	before := w.box.WrapLeased("billing", messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error {
		_, err := step.Call(ctx, "call", func(context.Context, string) (string, error) { return "text", nil })
		return errors.Join(err, errNotNow)
	}))
	require.ErrorIs(t, before.Handle(t.Context(), m), errNotNow)
	after := w.box.WrapLeased("billing", messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error {
		_, err := step.Call(ctx, "call", func(context.Context, string) (int, error) { return 0, nil })
		return err
	}))
	require.NoError(t, after.Handle(t.Context(), m))
	require.Contains(t, w.dead()[0].Error, `Call "call": decode`)
	require.Equal(t, []string{"call"}, w.steps(), "kept for the replay")
}

// The call was made, and then every connection breaks: its result must not be lost with them.
func TestResultIsStoredOverABrokenConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var o outside
	pool := w.db.Another(t)
	pool.SetMaxOpenConns(1)
	box := newBox(uow.New(pool, &uow.Config{Telemetry: telemetry.Config{Logger: quiet()}}), nil)
	h := box.WrapLeased("billing", messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error {
		_, err := step.Call(ctx, "call", func(context.Context, string) (int, error) {
			o.call("call")
			w.exec("SELECT pg_terminate_backend(?, 20000)", column[int](t, pool, "SELECT pg_backend_pid()")[0])
			return 1, nil
		})
		return err
	}))
	require.NoError(t, h.Handle(t.Context(), ordered("m", "o1")))
	require.Equal(t, []string{"call"}, o.list())
	w.nothingLeft()
}

func TestStepInUnitCommitsItsEffectsWithItsMark(t *testing.T) {
	sink := &collector{}
	w := newWorld(t, sink)
	m := ordered(newID(t), "o1")
	m.Metadata = event.Metadata{event.CorrelationID: "request-7"}
	rolledBack, failed := false, false
	h := w.box.WrapLeased("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		err := inbox.StepInUnit(ctx, "local", func(ctx context.Context, u *uow.Unit) error {
			require.NoError(t, w.effect(ctx, m))
			require.NoError(t, u.Add("invoice", map[string]int{"total": 1}))
			if !rolledBack {
				rolledBack = true
				return errNotNow
			}
			return nil
		})
		if err == nil && !failed {
			failed = true
			return errNotNow
		}
		return err
	}))
	require.ErrorIs(t, h.Handle(t.Context(), m), errNotNow)
	require.Empty(t, w.effects())
	require.Empty(t, w.steps())
	require.ErrorIs(t, h.Handle(t.Context(), m), errNotNow)
	require.Equal(t, []string{"local"}, w.steps())
	require.NoError(t, h.Handle(t.Context(), m))
	require.Equal(t, []string{m.ID}, w.effects())
	require.Len(t, sink.committed, 1)
	require.Equal(t, "t1", sink.committed[0].TenantID)
	require.Equal(t, event.Metadata{event.CorrelationID: "request-7", event.CausationID: m.ID}, sink.committed[0].Metadata)
	w.nothingLeft()
}

// A unit that takes longer than the lease is no reason to lose it, and one whose lease is lost meanwhile is rolled back.
func TestLongStepInUnit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := w.process(nil).WrapLeased("billing", messaging.HandlerFunc(func(context.Context, *messaging.Message) error { return nil }))
	for _, lose := range []bool{false, true} {
		m := ordered(newID(t), "o1")
		h := w.process(renewedSoon).WrapLeased("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
			return inbox.StepInUnit(ctx, "local", func(ctx context.Context, u *uow.Unit) error {
				require.NoError(t, effectIn(ctx, u, m))
				if lose {
					w.takeOver(other, m)
					return nil
				}
				w.endLeases()
				w.awaitRenewal()
				return nil
			})
		}))
		err := h.Handle(t.Context(), m)
		if lose {
			require.ErrorIs(t, err, inbox.ErrLeaseLost)
			require.Len(t, w.effects(), 1)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, []string{m.ID}, w.effects())
	}
	w.nothingLeft()
}

func TestCleanRemovesStepsThatNobodyNeeds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var o outside
	box := w.process(func(c *inbox.Config) { c.Retry.Tries = 1 })
	h := box.WrapLeased("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		err := o.step(ctx, m.ID)
		if m.ID == "dead" {
			return messaging.Permanent(errNotNow)
		}
		return errors.Join(err, errNotNow)
	}))
	for _, id := range []string{"dead", "parked", "discarded"} {
		require.NoError(t, h.Handle(t.Context(), ordered(id, id)))
	}
	w.exec("DELETE FROM inbox_parked WHERE message_id = 'discarded'")
	w.exec("INSERT INTO oncebox_lease VALUES ('inbox.message', 'billing', 1, gen_random_uuid(), clock_timestamp() - interval '11 days')")
	w.exec("INSERT INTO oncebox_lease VALUES ('another task', '', 0, gen_random_uuid(), clock_timestamp() - interval '11 days')")
	require.NoError(t, box.Clean(t.Context()))
	require.Equal(t, 1, w.count("oncebox_lease WHERE task = 'another task'"), "it is for others to remove")
	require.Equal(t, []string{"dead", "parked", "discarded"}, w.steps())
	w.exec("UPDATE inbox_step SET done_at = done_at - interval '11 days'")
	require.NoError(t, box.Clean(t.Context()))
	require.Equal(t, []string{"dead", "parked"}, w.steps())
	require.Zero(t, w.leases())
}
