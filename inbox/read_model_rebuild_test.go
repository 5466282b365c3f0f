package inbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/readmodel"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/nightly"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/outbox/published"
	"github.com/oncebox/oncebox/projector"
	"github.com/oncebox/oncebox/retry"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

// deposited is the nth event of its account.
type deposited struct {
	Nth   int `json:"nth"`
	Cents int `json:"cents"`
}

func (deposited) EventType() string { return "account.deposited" }

type account struct {
	event.Recorder

	id      string
	version int64
}

func (*account) AggregateType() string     { return "account" }
func (a *account) AggregateID() string     { return a.id }
func (a *account) AggregateVersion() int64 { return a.version }

// bank is a service: its outbox, its broker, and processes that keep a read model of its events.
type bank struct {
	*world

	units  *uow.Manager
	store  *outbox.Store
	broker *memory.Broker
	totals map[string]int // what the read model has to say in the end: a fold of all events

	mu       sync.Mutex
	rng      *rand.Rand
	failures int
}

func newBank(t *testing.T, seed uint64) *bank {
	t.Helper()
	b := &bank{
		world: newWorldIn(t, pgtest.Migrated(t)), broker: memory.New(&memory.Config{Telemetry: telemetry.Config{Logger: quiet()}}),
		totals: map[string]int{}, rng: rand.New(rand.NewPCG(seed, 0)),
	}
	t.Cleanup(func() { require.NoError(t, b.broker.Close()) })
	b.store = outbox.NewStore(b.db.DB, &outbox.Config{Telemetry: telemetry.Config{Logger: quiet()}})
	registry := event.NewRegistry()
	event.Register[deposited](registry)
	b.units = uow.New(b.db.DB, &uow.Config{Source: "bank", Registry: registry, Telemetry: telemetry.Config{Logger: quiet()}}, b.store)
	for _, table := range []string{
		"CREATE TABLE balances (account text PRIMARY KEY, cents bigint NOT NULL, events bigint NOT NULL)",
		"CREATE TABLE disorder (account text, nth bigint)",
	} {
		_, err := b.db.ExecContext(t.Context(), table)
		require.NoError(t, err)
	}
	relay, err := projector.New(b.broker, &projector.Config{Telemetry: telemetry.Config{Logger: quiet()}}, b.store)
	require.NoError(t, err)
	b.background(relay.Run)
	return b
}

// background runs fn until the test ends.
func (b *bank) background(fn func(context.Context) error) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan error, 1)
	go func() { done <- fn(ctx) }()
	b.t.Cleanup(func() {
		cancel()
		require.NoError(b.t, <-done)
	})
}

// deposit announces n events of each account.
func (b *bank) deposit(accounts, n, from int) {
	b.t.Helper()
	for nth := from; nth < from+n; nth++ {
		for first := 0; first < accounts; first += 10 {
			require.NoError(b.t, b.units.Do(b.t.Context(), func(_ context.Context, u *uow.Unit) error {
				for a := first; a < min(first+10, accounts); a++ {
					a := &account{id: fmt.Sprintf("account-%02d", a), version: int64(nth)}
					cents := b.draw(1000)
					a.Record(deposited{nth, cents})
					u.Track(a)
					b.totals[a.id] += cents
				}
				return nil
			}, uow.WithoutRetry()))
		}
	}
}

// add is the handler of the read model. It fails now and then, and notes whatever comes out of order.
func (b *bank) add(ctx context.Context, m *messaging.Message) error {
	var e deposited
	if err := json.Unmarshal(m.Payload, &e); err != nil {
		return messaging.Permanent(err)
	}
	var events int
	err := b.units.DB(ctx).NewRaw(`INSERT INTO balances (account, cents, events) VALUES (?, ?, 1)
		ON CONFLICT (account) DO UPDATE SET cents = balances.cents + excluded.cents, events = balances.events + 1
		RETURNING events`, m.AggregateID, e.Cents).Scan(ctx, &events)
	if err != nil {
		return err
	}
	if events != e.Nth {
		if _, err := b.units.DB(ctx).NewRaw("INSERT INTO disorder VALUES (?, ?)", m.AggregateID, e.Nth).Exec(ctx); err != nil {
			return err
		}
	}
	if b.draw(100) == 0 {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.failures++
		return errNotNow
	}
	return nil
}

// draw draws a number below n.
func (b *bank) draw(n int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rng.IntN(n)
}

// process consumes, works on what is parked, and may rebuild.
func (b *bank) process(batch int) *readmodel.Model {
	b.t.Helper()
	box := newBox(b.units, &inbox.Config{
		Retry:        inbox.RetryPolicy{Tries: 2, MaxAttempts: -1, Policy: retry.Policy{Delay: 5 * time.Millisecond, MaxDelay: 20 * time.Millisecond}},
		PollInterval: 20 * time.Millisecond, CrashGuard: -1,
	})
	p := readmodel.New(box, "balances", messaging.HandlerFunc(b.add))
	receiver, err := b.broker.Subscribe(b.t.Context(), messaging.Subscription{Topic: "account", Name: "balances"})
	require.NoError(b.t, err)
	consumer := messaging.NewConsumer(receiver, p, &messaging.ConsumerConfig{
		Name: "balances", BatchSize: batch, Retry: retry.Policy{Delay: time.Millisecond}, Telemetry: telemetry.Config{Logger: quiet()},
	})
	b.background(consumer.Run)
	b.background(box.RunParked)
	return p
}

func (b *bank) clear(ctx context.Context, u *uow.Unit) error {
	_, err := u.DB().ExecContext(ctx, "DELETE FROM balances; DELETE FROM disorder")
	return err
}

func (b *bank) handled() int {
	return column[int](b.t, b.db.DB, "SELECT coalesce(sum(events), 0) FROM balances")[0]
}

// check waits until everything was handled and compares the read model.
func (b *bank) check(events int) {
	b.t.Helper()
	await.True(b.t, func() bool { return b.handled() >= events && len(b.parked()) == 0 }, "%d events are handled, and no message is parked", events)
	require.Equal(b.t, events, b.handled(), "once each")
	require.Empty(b.t, column[string](b.t, b.db.DB, "SELECT account || ' ' || nth FROM disorder"))
	got := map[string]int{}
	for id := range b.totals {
		got[id] = column[int](b.t, b.db.DB, "SELECT cents FROM balances WHERE account = ?", id)[0]
	}
	require.Equal(b.t, b.totals, got)
	require.Empty(b.t, b.dead())
	require.Empty(b.t, b.keys())
}

// Messages come, handlers fail now and then, and meanwhile the read model is rebuilt: begun twice, cancelled in the middle,
// broken off by a panic, gone on with by another process, and done once more from the start.
func TestRebuildWhileMessagesGoOn(t *testing.T) {
	for seed := range nightly.Seeds(t, 1, 3) {
		newBank(t, seed).rebuildWhileMessagesGoOn()
	}
}

func (b *bank) rebuildWhileMessagesGoOn() {
	t := b.t
	t.Helper()
	accounts := nightly.N(25, 50)
	portion, events := 4*accounts, 40*accounts
	here, there := b.process(1), b.process(20)
	b.deposit(accounts, 15, 1)
	await.True(t, func() bool { // else the history ends before it is broken off
		return column[int](t, b.db.DB, "SELECT count(*)::int FROM outbox_published")[0] == 15*accounts
	}, "all events so far are published")
	var traffic sync.WaitGroup
	traffic.Go(func() { b.deposit(accounts, 25, 16) })
	history := readmodel.History(b.store.Published().History(published.Filter{Topic: "account"}))

	ctx, cancel := context.WithCancel(t.Context())
	err := here.Rebuild(ctx, b.clear, small(history), func(done readmodel.Progress) {
		require.ErrorIs(t, there.Rebuild(t.Context(), b.clear, history, nil), readmodel.ErrRebuilding)
		if done.Events >= int64(portion) {
			cancel()
		}
	})
	require.ErrorIs(t, err, context.Canceled)
	cut := b.status(here)
	require.True(t, cut.Rebuilding)
	require.False(t, cut.Running)

	require.PanicsWithValue(t, "broken", func() {
		_ = there.Resume(t.Context(), small(history), func(done readmodel.Progress) {
			require.Greater(t, done.Events, cut.Events)
			if done.Events >= cut.Events+int64(portion) {
				panic("broken")
			}
		})
	})
	require.True(t, b.status(there).Rebuilding)
	require.NoError(t, there.Resume(t.Context(), history, nil))
	require.EqualValues(t, 1, b.status(here).Generation)
	require.NoError(t, here.Rebuild(t.Context(), b.clear, history, nil), "and once more, from the start")
	traffic.Wait()
	b.check(events)
	require.EqualValues(t, 2, b.status(there).Generation)
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Positive(t, b.failures)
}

// small cuts the portions of a history.
func small(history readmodel.History) readmodel.History {
	return func(ctx context.Context, checkpoint string, to func(context.Context, []event.Envelope, string) error) error {
		return history(ctx, checkpoint, func(ctx context.Context, events []event.Envelope, behind string) error {
			for len(events) > 0 {
				n := min(len(events), 50)
				at := checkpoint
				if n == len(events) {
					at = behind
				}
				if err := to(ctx, events[:n], at); err != nil {
					return err
				}
				events = events[n:]
			}
			checkpoint = behind
			return nil
		})
	}
}
