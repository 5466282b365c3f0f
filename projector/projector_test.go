package projector_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox/state"
	"github.com/oncebox/oncebox/projector"
)

// A store lives as long as its program; the projectors that it once woke need not.
func TestProjectorThatHasEndedIsForgottenByItsStores(t *testing.T) {
	f := newFixture(t)
	p := f.projector(quick())
	require.NoError(t, p.RunOnce(t.Context()))
	ended := weak.Make(p)
	f.eventually("nobody has it any more", func() bool {
		runtime.GC()
		return ended.Value() == nil
	})
	f.store.Wake()
}

func TestRunOncePublishesInOrderPerKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for n := range 50 {
		for key := range 20 {
			f.add(fmt.Sprintf("k%d", key), fmt.Sprintf("k%d/%d", key, n))
		}
	}
	cfg := patient()
	cfg.BatchSize = 64
	require.NoError(t, f.projector(cfg).RunOnce(t.Context()))
	next := map[string]int{}
	for _, m := range f.pub.events() {
		require.Equal(t, fmt.Sprintf("%s/%d", m.AggregateID, next[m.AggregateID]), m.Type)
		next[m.AggregateID]++
	}
	require.Equal(t, 1000, f.pub.total())
	for _, status := range f.statuses() {
		require.Equal(t, state.StatusSent, status)
	}
}

func TestRefusedRowHoldsItsKeyOnly(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	refusals := 0
	f.pub.refuse = func(e event.Envelope) error {
		if e.Type == "a1" && (refusals < 2 || len(f.pub.taken) == 0) {
			refusals++
			return errors.New("not now, perhaps after b1")
		}
		return nil
	}
	f.add("a", "a1")
	f.add("a", "a2")
	f.add("b", "b1")
	cfg := quick()
	cfg.MaxRetryAttempts = -1
	f.run(f.projector(cfg))
	f.eventually("all are sent", func() bool { return f.pub.total() == 3 })
	require.Equal(t, []string{"b1", "a1", "a2"}, f.pub.types())
}

func TestDeadRowBlocksItsKeyUntilReplayed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.pub.refuse = func(e event.Envelope) error {
		if e.Type == "a1" {
			return messaging.Permanent(errors.New("never"))
		}
		return nil
	}
	id := f.add("a", "a1")
	f.add("a", "a2")
	f.add("b", "b1")
	p := f.projector(quick())
	require.NoError(t, p.RunOnce(t.Context()))
	f.add("a", "a3")
	require.NoError(t, p.RunOnce(t.Context()))
	require.Equal(t, map[string]string{"a1": "DEAD", "a2": "NEW", "a3": "NEW", "b1": "SENT"}, f.statuses())

	f.pub.refuseWith(nil)
	require.NoError(t, f.store.Dead().Replay(t.Context(), id, operator.By{Actor: "ann"}))
	f.run(p)
	f.eventually("the key is free", func() bool { return f.pub.total() == 4 })
	require.Equal(t, []string{"b1", "a1", "a2", "a3"}, f.pub.types())
	require.Equal(t, id, f.pub.events()[1].ID, "a replay keeps the id")
	f.add("a", "a4")
	f.store.Wake()
	f.eventually("the block is lifted", func() bool { return f.pub.total() == 5 })
}

func TestAttemptsEndInDead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.pub.refuse = func(event.Envelope) error { return errors.New("no") }
	f.add("a", "a1")
	cfg := quick()
	cfg.MaxRetryAttempts = 3
	f.run(f.projector(cfg))
	f.eventually("a1 is dead", func() bool { return f.statuses()["a1"] == "DEAD" })
	letters, err := f.store.Dead().List(t.Context(), operator.DeadFilter{}, nil, 10)
	require.NoError(t, err)
	require.Equal(t, 3, letters[0].RetryCount)
	require.Equal(t, "no", letters[0].Error)
}

func TestOutageSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	for name, outage := range map[string]error{
		"broker": messaging.ErrBrokerDown, "unknown": messaging.ErrUnknown,
		"topic": &messaging.TopicError{Topic: "order", Err: errors.New("terminated")},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			var calls atomic.Int64
			f.pub.refuse = func(event.Envelope) error { calls.Add(1); return outage }
			f.add("a", "a1")
			cfg := quick()
			cfg.MaxRetryAttempts = 1
			f.run(f.projector(cfg))
			f.eventually("it is tried again", func() bool { return calls.Load() >= 2 })
			f.pub.refuseWith(nil)
			f.eventually("sent", func() bool { return f.statuses()["a1"] == "SENT" })
			var record state.Record
			require.NoError(t, f.db.NewSelect().Model(&record).Scan(t.Context()))
			require.Zero(t, record.RetryCount)
		})
	}
}

// gate is a publisher that stops in the middle of a call until it is opened.
type gate struct {
	*recorder
	entered chan struct{}
	open    chan struct{}
	once    sync.Once
}

func (g *gate) release() { g.once.Do(func() { close(g.open) }) }

func (g *gate) Publish(ctx context.Context, msgs []event.Envelope) error {
	if msgs[0].Type == "slow" {
		g.entered <- struct{}{}
		<-g.open
	}
	return g.recorder.Publish(ctx, msgs)
}

func TestAllFiveStatusesOfARunningRelay(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.pub.refuse = func(e event.Envelope) error {
		switch e.Type {
		case "poison":
			return messaging.Permanent(errors.New("never"))
		case "refused":
			return errors.New("not now")
		}
		return nil
	}
	g := &gate{recorder: f.pub, entered: make(chan struct{}, 1), open: make(chan struct{})}
	f.add("a", "sent")
	f.add("b", "poison")
	f.add("c", "refused")
	f.add("c", "behind")
	cfg := patient()
	cfg.Retry.Delay, cfg.Retry.MaxDelay = time.Hour, time.Hour
	p := f.relay(g, cfg, f.store)
	f.run(p)
	t.Cleanup(g.release)
	f.eventually("the first batch is settled", func() bool {
		s := f.statuses()
		return s["sent"] == "SENT" && s["poison"] == "DEAD" && s["refused"] == "FAILED"
	})
	f.add("d", "slow")
	p.Wake()
	<-g.entered
	require.Equal(t, map[string]string{
		"sent": "SENT", "poison": "DEAD", "refused": "FAILED", "behind": "NEW", "slow": "PUBLISHING",
	}, f.statuses())
	g.release()
	f.eventually("slow is sent", func() bool { return f.statuses()["slow"] == "SENT" })
}

func TestLanesAreSharedAndHandedBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	cfg := quick()
	cfg.Lease, cfg.Renew, cfg.PublishTimeout = 4e9, 50e6, 1e9
	owners := func() map[string]int {
		var rows []struct {
			Owner string
			N     int
		}
		require.NoError(t, f.db.NewRaw("SELECT owner, count(*) AS n FROM outbox_lane WHERE owner IS NOT NULL GROUP BY owner").Scan(t.Context(), &rows))
		out := map[string]int{}
		for _, r := range rows {
			out[r.Owner] = r.N
		}
		return out
	}
	cfg.Name = "one"
	stopOne := f.run(f.projector(cfg))
	f.eventually("one has all", func() bool { return owners()["one"] == 64 })
	cfg.Name = "two"
	f.run(f.projector(cfg))
	f.eventually("halves", func() bool { o := owners(); return o["one"] == 32 && o["two"] == 32 })
	stopOne()
	f.eventually("two has all", func() bool { return owners()["two"] == 64 })
}

// Events of one ordering key that go to different topics leave one after the other, also while a topic is in trouble.
func TestPausedTopicIsNotOvertakenUnderItsKeys(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.pub.refuse = func(e event.Envelope) error {
		if e.Topic == "down" {
			return &messaging.TopicError{Topic: "down", Err: errors.New("terminated")}
		}
		return nil
	}
	add := func(topic, name, key string) {
		_, err := pgtest.Add(t.Context(), f.db.DB, f.store, topic, []byte(name), event.WithType(name), event.WithAggregate("order", key, 1))
		require.NoError(t, err)
	}
	add("down", "a1", "a")
	add("up", "a2", "a")
	add("up", "b1", "b")
	f.run(f.projector(quick()))
	f.eventually("the other key is served", func() bool { return f.pub.total() == 1 })
	add("up", "a3", "a")
	add("up", "b2", "b")
	f.store.Wake()
	f.eventually("and goes on", func() bool { return f.pub.total() == 2 })
	f.pub.refuseWith(nil)
	f.eventually("all are sent", func() bool { return f.pub.total() == 5 })
	require.Equal(t, []string{"b1", "b2", "a1", "a2", "a3"}, f.pub.types())
}

// An error of one message that wraps the end of some context is about that message, not about the broker.
func TestHandlersOwnTimeoutCostsAttempts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.pub.refuse = func(event.Envelope) error { return fmt.Errorf("call a service: %w", context.DeadlineExceeded) }
	f.add("a", "a1")
	cfg := quick()
	cfg.MaxRetryAttempts = 2
	f.run(f.projector(cfg))
	f.eventually("a1 is dead", func() bool { return f.statuses()["a1"] == "DEAD" })
}

func TestHeldRowThatExpiredIsDead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var calls int
	f.pub.refuse = func(event.Envelope) error { calls++; return errors.New("not now") }
	f.add("a", "a1", event.WithExpiry(time.Now().Add(time.Hour)))
	p := f.projector(quick())
	require.NoError(t, p.RunOnce(t.Context()))
	_, err := f.db.Exec("UPDATE outbox_held SET expires_at = now() - interval '1 second'")
	require.NoError(t, err)
	f.pub.refuseWith(nil)
	f.run(p)
	f.eventually("a1 is dead", func() bool { return f.statuses()["a1"] == "DEAD" })
	require.Empty(t, f.pub.types())
}

// A standby took over that had not seen the last numbers: they are given out again, below the cursors of the lanes.
func TestNumbersThatAreGivenOutAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := f.projector(quick())
	f.run(p)
	for n := range 50 {
		f.add(fmt.Sprint("before", n), "before")
	}
	f.eventually("the cursors have moved, and no number is in use", func() bool { return projector.Mark(p) >= 50 && f.allSent() })
	// The lock waits for a statement of the relay that still writes a position, and lets no other begin: a server that is lost writes no more.
	require.NoError(t, f.db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
		_, err := tx.ExecContext(ctx, "LOCK TABLE outbox_progress")
		if err == nil {
			_, err = tx.ExecContext(ctx, `
				WITH rows AS (DELETE FROM outbox), positions AS (DELETE FROM outbox_progress), server AS (DELETE FROM outbox_incarnation)
				SELECT setval('outbox_seq', 1)`)
		}
		return err
	}))
	for n := range 40 {
		f.add(fmt.Sprint("after", n), "after")
	}
	f.eventually("all are sent", func() bool { return f.pub.total() == 90 })
}

// If two positions have the same number, the one with the higher outbox_progress_n counts.
func TestSequenceOfThePositionsThatIsBehind(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.add("a", "a1")
	require.NoError(t, f.projector(quick()).RunOnce(t.Context()))
	_, err := f.db.Exec("SELECT setval('outbox_progress_n', 1, false)")
	require.NoError(t, err)
	f.add("a", "a2")
	require.ErrorIs(t, f.projector(quick()).RunOnce(t.Context()), lanedb.ErrNumbersAgain)
	require.Equal(t, 1, f.pub.total())
}

// In a copy without its sequences, the numbers have passed the published ones before anything could be published from it.
func TestSequenceThatWasBehindItsRows(t *testing.T) {
	t.Parallel()
	for name, meets := range map[string]func(f *fixture){
		"another server": func(f *fixture) {
			_, err := f.db.Exec("UPDATE oncebox_settings SET numbers_of = 'another'")
			require.NoError(f.t, err)
		},
		"a relay has met it": func(f *fixture) {
			require.ErrorIs(f.t, f.projector(quick()).RunOnce(f.t.Context()), lanedb.ErrNumbersAgain)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			for n := range 10 {
				f.add(fmt.Sprint("k", n%5), fmt.Sprint("before", n))
			}
			require.NoError(t, f.projector(quick()).RunOnce(t.Context()))
			require.Equal(t, 1, f.rows("oncebox_settings WHERE numbers_of IS NOT NULL"))
			_, err := f.db.Exec(`WITH p AS (UPDATE outbox_progress SET at = at - interval '1 minute')
				UPDATE outbox SET created_at = created_at - interval '1 minute'`)
			require.NoError(t, err)
			_, err = f.db.Exec("SELECT setval('outbox_seq', 1, false)")
			require.NoError(t, err)
			for n := range 20 { // the first ten have the numbers, and are in the lanes, of those before
				f.add(fmt.Sprint("k", n%5), "after")
				if n == 0 {
					meets(f)
				}
			}
			for range 2 {
				require.ErrorIs(t, f.projector(quick()).RunOnce(t.Context()), lanedb.ErrNumbersAgain)
			}
			require.Equal(t, 10, f.pub.total())
		})
	}
}

// A copy without its sequences gives numbers again that were published. Nothing is published until they are set, and then what was recorded
// meanwhile is, as docs/runbook.md says.
func TestSequenceThatIsBehindItsRows(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var all []string
	for n := range 50 {
		all = append(all, f.add(fmt.Sprint("k", n%5), fmt.Sprint("before", n)))
	}
	require.NoError(t, f.projector(quick()).RunOnce(t.Context()))
	var restored time.Time
	require.NoError(t, f.db.NewRaw("SELECT clock_timestamp() FROM (SELECT setval('outbox_seq', 1)) x").Scan(t.Context(), &restored))
	for n := range 20 {
		all = append(all, f.add(fmt.Sprint("k", n%5), fmt.Sprint("after", n)))
	}
	require.ErrorIs(t, f.projector(quick()).RunOnce(t.Context()), lanedb.ErrNumbersAgain)
	require.Equal(t, 50, f.pub.total())
	require.Zero(t, f.rows("oncebox_settings WHERE numbers_of IS NOT NULL"))

	for _, statement := range []string{
		"SELECT setval('outbox_seq', (SELECT max(greatest(upto, sent)) + 1000 FROM outbox_cursor)), " +
			"setval('outbox_progress_n', (SELECT max(n) + 1000 FROM outbox_progress))",
		`UPDATE outbox o SET seq = n.seq FROM (
			SELECT id, nextval('outbox_seq') AS seq FROM (SELECT id FROM outbox WHERE created_at >= ? ORDER BY seq) x) n WHERE o.id = n.id`,
	} {
		_, err := f.db.NewRaw(statement, restored).Exec(t.Context())
		require.NoError(t, err)
	}
	require.NoError(t, f.projector(quick()).RunOnce(t.Context()))
	require.Equal(t, 70, f.pub.total())
	f.pub.requireOrder(t, all)
}

// The events of a key go to one place, to another and to the first one again. None of them may be sent
// before the one in front of it.
func TestKeyThatComesBackToAPlace(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for i, route := range []string{"here", "there", "here", "there"} {
		f.add("a", fmt.Sprint("a", i), event.WithRoutingKey(route))
	}
	require.NoError(t, f.projector(quick()).RunOnce(t.Context()))
	require.Equal(t, []string{"a0", "a1", "a2", "a3"}, f.pub.types())
}
