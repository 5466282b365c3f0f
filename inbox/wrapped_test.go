package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

var errNotNow = errors.New("not now")

// The copies meet in the lock of their key, or, without one, in the unique index.
func TestConcurrentCopiesRunOnce(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]*messaging.Message{
		"ordered": ordered(newID(t), "o1"), "unordered": unordered(newID(t)), "foreign id": unordered("4711/7"),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			h := w.box.Wrap("billing", messaging.HandlerFunc(w.effect))
			var wg sync.WaitGroup
			errs := make([]error, 8)
			for i := range errs {
				wg.Go(func() { errs[i] = h.Handle(t.Context(), m) })
			}
			wg.Wait()
			require.NoError(t, errors.Join(errs...))
			require.Equal(t, []string{m.ID}, w.effects())
			require.Equal(t, 1, w.entries())
		})
	}
}

// A copy that comes while the first one is being handled must not be settled before it is: it would be acknowledged and
// lost if the first one fails.
func TestCopyWaitsForTheFirstAndRunsIfThatFails(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]*messaging.Message{"ordered": ordered(newID(t), "o1"), "unordered": unordered(newID(t))} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			began, release := make(chan struct{}), make(chan error)
			first := w.box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
				require.NoError(t, w.effect(ctx, m))
				close(began)
				return <-release
			}))
			second := w.box.Wrap("billing", messaging.HandlerFunc(w.effect))
			firstDone, secondDone := make(chan error, 1), make(chan error, 1)
			go func() { firstDone <- first.Handle(t.Context(), m) }()
			<-began
			go func() { secondDone <- second.Handle(t.Context(), m) }()
			w.awaitWaiters(1)
			select {
			case <-secondDone:
				require.Fail(t, "the copy did not wait")
			default:
			}
			release <- errNotNow
			require.ErrorIs(t, <-firstDone, errNotNow)
			require.NoError(t, <-secondDone)
			require.Equal(t, []string{m.ID}, w.effects())
		})
	}
}

// awaitWaiters returns once n statements on this test's inbox wait for a lock.
func (w *world) awaitWaiters(n int) {
	w.t.Helper()
	const waiting = `WITH RECURSIVE held AS (
			SELECT DISTINCT pid FROM pg_locks WHERE relation = 'inbox'::regclass AND granted
		), waits AS (
			SELECT a.pid FROM pg_stat_activity a WHERE pg_blocking_pids(a.pid) && (SELECT array_agg(pid) FROM held)
			UNION
			SELECT a.pid FROM waits w JOIN pg_stat_activity a ON w.pid = ANY (pg_blocking_pids(a.pid))
		) SELECT count(*) FROM waits`
	await.True(w.t, func() bool { return column[int](w.t, w.db.DB, waiting)[0] >= n }, "%d statements that wait for a lock", n)
}

// Two processes were given the same key, as at a takeover: the second message must see what the first one did.
func TestMessagesOfOneKeyWaitForEachOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, done := await.Context(t.Context(), t, "the messages of one key")
	defer done()
	_, err := w.db.ExecContext(t.Context(), "CREATE TABLE orders (id text PRIMARY KEY, placed bool NOT NULL)")
	require.NoError(t, err)
	m1, m2, other := ordered(newID(t), "o1"), ordered(newID(t), "o1"), ordered(newID(t), "o2")
	began, release := make(chan struct{}), make(chan struct{})
	first := w.box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error {
		close(began)
		<-release
		_, err := w.units.DB(ctx).ExecContext(ctx, "INSERT INTO orders VALUES ('o1', true)")
		return err
	}))
	second := w.box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error {
		var placed bool
		err := w.units.DB(ctx).NewRaw("SELECT placed FROM orders WHERE id = 'o1'").Scan(ctx, &placed)
		if errors.Is(err, sql.ErrNoRows) {
			return messaging.Permanent(errors.New("an order that was never placed"))
		}
		return err
	}))
	firstDone, secondDone := make(chan error, 1), make(chan error, 1)
	go func() { firstDone <- first.Handle(ctx, m1) }()
	<-began
	go func() { secondDone <- second.Handle(ctx, m2) }()
	w.awaitWaiters(1)

	// Neither another key nor another consumer waits with it.
	require.NoError(t, w.box.Wrap("billing", messaging.HandlerFunc(w.effect)).Handle(ctx, other))
	require.NoError(t, w.box.Wrap("shipping", messaging.HandlerFunc(w.effect)).Handle(ctx, m1))
	close(release)
	require.NoError(t, <-firstDone)
	require.NoError(t, <-secondDone)
	require.Empty(t, w.dead())
}

func TestKeyIsConsumerTenantSourceAndID(t *testing.T) {
	t.Parallel()
	for _, id := range []string{newID(t), "4711"} {
		w := newWorld(t)
		handle := func(consumer string, change func(*messaging.Message)) {
			m := ordered(id, "o1")
			change(m)
			for range 2 {
				require.NoError(t, w.box.Wrap(consumer, messaging.HandlerFunc(w.effect)).Handle(t.Context(), m))
			}
		}
		nothing := func(*messaging.Message) {}
		handle("billing", nothing)
		require.Len(t, w.effects(), 1)
		handle("shipping", nothing)
		require.Len(t, w.effects(), 2)
		handle("billing", func(m *messaging.Message) { m.TenantID = "t2" })
		require.Len(t, w.effects(), 3)
		handle("billing", func(m *messaging.Message) { m.Source = "warehouse" })
		require.Len(t, w.effects(), 4)
		handle("billing", func(m *messaging.Message) { m.TenantID = "" })
		require.Len(t, w.effects(), 5)
		handle("billing", func(m *messaging.Message) { m.TenantID = inbox.DefaultTenantID })
		require.Len(t, w.effects(), 5, "no tenant is the default one")
		handle("billing", func(m *messaging.Message) { m.AggregateID, m.Topic, m.Type = "o2", "elsewhere", "order.moved" })
		require.Len(t, w.effects(), 5, "nothing else is in the key")
		require.Equal(t, 5, w.entries())
	}
}

func TestFailureLeavesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := ordered(newID(t), "o1")
	fails := w.box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		require.NoError(t, w.effect(ctx, m))
		return errNotNow
	}))
	require.ErrorIs(t, fails.Handle(t.Context(), m), errNotNow)
	require.Empty(t, w.effects())
	require.Zero(t, w.entries())
	require.Empty(t, w.dead())

	require.NoError(t, w.box.Wrap("billing", messaging.HandlerFunc(w.effect)).Handle(t.Context(), m))
	require.Equal(t, []string{m.ID}, w.effects())
}

func TestPanicLeavesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		require.NoError(t, w.effect(ctx, m))
		panic("no")
	}))
	require.Panics(t, func() { _ = h.Handle(t.Context(), ordered(newID(t), "o1")) })
	require.Empty(t, w.effects())
	require.Zero(t, w.entries())
}

// PostgreSQL answers COMMIT of such a transaction with a rollback; a consumer that did not notice would acknowledge.
func TestSwallowedErrorOfAStatementIsNotSettled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		require.NoError(t, w.effect(ctx, m))
		_, _ = w.units.DB(ctx).ExecContext(ctx, "SELECT 1/0")
		return nil
	}))
	require.Error(t, h.Handle(t.Context(), ordered(newID(t), "o1")))
	require.Empty(t, w.effects())
	require.Zero(t, w.entries())
}

// The connection dies after the handler has done its work and before COMMIT, as when the server or the process is killed.
func TestKilledBeforeCommitIsHandledAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := ordered(newID(t), "o1")
	killed := w.box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		require.NoError(t, w.effect(ctx, m))
		var pid int
		require.NoError(t, w.units.DB(ctx).NewRaw("SELECT pg_backend_pid()").Scan(ctx, &pid))
		_, err := w.db.ExecContext(t.Context(), "SELECT pg_terminate_backend(?, 20000)", pid)
		return err
	}))
	require.Error(t, killed.Handle(t.Context(), m))
	require.Empty(t, w.effects())
	require.Zero(t, w.entries())

	h := w.box.Wrap("billing", messaging.HandlerFunc(w.effect))
	require.NoError(t, h.Handle(t.Context(), m))
	require.NoError(t, h.Handle(t.Context(), m))
	require.Equal(t, []string{m.ID}, w.effects())
}

// collector is a sink that keeps what was committed.
type collector struct{ flushed, committed []event.Envelope }

func (c *collector) Flush(_ context.Context, _ bun.IDB, evs []event.Envelope) error {
	c.flushed = append(c.flushed, evs...)
	return nil
}

func (c *collector) Committed(_ context.Context, evs []event.Envelope) {
	c.committed = append(c.committed, evs...)
}

func TestEmittedEventsAreTiedToTheMessageAndCommitWithIt(t *testing.T) {
	sink := &collector{}
	w := newWorld(t, sink)
	m := ordered(newID(t), "o1")
	m.Metadata = event.Metadata{event.CorrelationID: "request-7", "color": "red"}
	var result error
	h := w.box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		in, ok := messaging.FromContext(ctx)
		require.True(t, ok)
		require.Same(t, m, in)
		u, ok := uow.FromContext(ctx)
		require.True(t, ok)
		require.NoError(t, u.Add("invoice", map[string]int{"total": 1}))
		return result
	}))

	result = errNotNow
	require.Error(t, h.Handle(t.Context(), m))
	require.Empty(t, sink.flushed)

	result = nil
	for range 2 {
		require.NoError(t, h.Handle(t.Context(), m))
	}
	require.Len(t, sink.committed, 1)
	got := sink.committed[0]
	require.Equal(t, "t1", got.TenantID)
	require.Equal(t, event.Metadata{event.CorrelationID: "request-7", event.CausationID: m.ID}, got.Metadata)
}

// Values that code between consumer and inbox has put on the context stay there.
func TestContextOfTheConsumerIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := ordered(newID(t), "o1")
	h := w.box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error {
		require.Equal(t, "changed", event.MetadataFrom(ctx)[event.CorrelationID])
		return nil
	}))
	ctx := event.WithMetadata(messaging.NewContext(t.Context(), m), event.Metadata{event.CorrelationID: "changed"})
	require.NoError(t, h.Handle(ctx, m))
}

// A default of the server or of the user must not take away what lock and index rest on.
func TestIsolationIsReadCommittedWhateverTheDefaultIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pool, err := sql.Open("pgx", w.db.DSN+"&default_transaction_isolation=serializable")
	require.NoError(t, err)
	defer pool.Close()
	units := uow.New(bun.NewDB(pool, pgdialect.New()), nil)
	require.Equal(t, []string{"serializable"}, column[string](t, units.DB(t.Context()), "SHOW transaction_isolation"))

	level := messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error {
		require.Equal(t, []string{"read committed"}, column[string](t, units.DB(ctx), "SHOW transaction_isolation"))
		return nil
	})
	require.NoError(t, newBox(units, nil).Wrap("billing", level).Handle(t.Context(), ordered(newID(t), "o1")))
}

func TestWithinAnotherUnitItCommitsWithIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := ordered(newID(t), "o1")
	h := w.box.Wrap("billing", messaging.HandlerFunc(w.effect))
	err := w.units.Do(t.Context(), func(ctx context.Context, _ *uow.Unit) error {
		require.NoError(t, h.Handle(ctx, m))
		return errNotNow
	})
	require.ErrorIs(t, err, errNotNow)
	require.Empty(t, w.effects())
	require.Zero(t, w.entries())
}

func TestWithAPooler(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.units = uow.New(w.db.Pooled(t).DB, &uow.Config{Source: "test", Telemetry: telemetry.Config{Logger: quiet()}})
	m := ordered(newID(t), "o1")
	box := newBox(w.units, &inbox.Config{Pooler: true, Schema: w.db.Schema})
	h := box.Wrap("billing", messaging.HandlerFunc(w.effect))
	require.NoError(t, h.Handle(t.Context(), m))
	require.NoError(t, h.Handle(t.Context(), m))
	require.Equal(t, []string{m.ID}, w.effects())
	require.NoError(t, box.Wrap("billing", gaveUp()).Handle(t.Context(), unordered("x")))
	require.Len(t, w.dead(), 1)
	require.NoError(t, box.Clean(t.Context()))
}

func TestMissingTablesAreNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.db.ExecContext(t.Context(), "DROP TABLE inbox")
	require.NoError(t, err)
	err = w.box.Wrap("billing", messaging.HandlerFunc(w.effect)).Handle(t.Context(), ordered(newID(t), "o1"))
	require.ErrorContains(t, err, "migrations.Up")
}

func TestMessageWithoutAnIDIsAnError(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	err := w.box.Wrap("billing", messaging.HandlerFunc(w.effect)).Handle(t.Context(), unordered(""))
	require.True(t, messaging.IsPermanent(err))
	require.Empty(t, w.effects())
	require.Empty(t, w.dead())
}

func TestWrapPanicsOnABadName(t *testing.T) {
	box := newBox(uow.New(nil, nil), nil)
	for _, name := range []string{"", "a\x00b", "a\xff"} {
		require.Panics(t, func() { box.Wrap(name, gaveUp()) })
	}
}
