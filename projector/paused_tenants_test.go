package projector_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
	outboxstate "github.com/oncebox/oncebox/outbox/state"
	"github.com/oncebox/oncebox/projector"
)

var night = operator.By{Actor: "ann", Reason: "their system is down at night"}

// pause pauses the tenant and waits until the projectors know of it.
func (f *fixture) pause(tenant string, by ...*projector.Projector) {
	f.t.Helper()
	require.NoError(f.t, f.store.Tenants().Pause(f.t.Context(), tenant, night))
	for _, p := range by {
		f.eventually("the pause is heard of", func() bool { return slices.Contains(projector.PausedTenants(p), tenant) })
	}
}

func (f *fixture) resume(tenant string) {
	f.t.Helper()
	require.NoError(f.t, f.store.Tenants().Resume(f.t.Context(), tenant, night))
}

func (f *fixture) stats() outboxstate.Stats {
	f.t.Helper()
	st, err := f.store.State().Stats(f.t.Context())
	require.NoError(f.t, err)
	return st
}

// requireOrder requires that each key was published in its order, and no row twice.
func (f *fixture) requireOrder() {
	f.t.Helper()
	last := map[string]int64{}
	for _, m := range f.pub.events() {
		key := m.TenantID + "|" + m.RoutingKey
		require.Greater(f.t, m.Sequence, last[key], key)
		last[key] = m.Sequence
	}
}

// A paused tenant's rows stay, more of them than a search looks at, and those of others pass them. A projector that starts meanwhile leaves
// them as well. All leave in their order when the tenant is resumed.
func TestPausedTenant(t *testing.T) {
	f := newFixture(t)
	p := f.projector(quick())
	stop := f.run(p)
	f.fill(64, "acme", "order", "before")
	f.eventually("nobody is paused", func() bool { return f.pub.of("acme") == 64 })
	f.pause("acme", p)
	f.pause("other", p) // and is not resumed
	const backlog = 64 * (2*lanedb.ScanWindow + 7)
	f.fill(backlog, "acme", "order", "night")
	f.fill(640, "small", "order", "small")
	f.eventually("others pass", func() bool { return f.pub.of("small") == 640 })
	f.eventually("what is passed has no age", func() bool { return f.stats().OldestAge == 0 })
	require.Greater(t, f.stats().Paused, int64(outboxstate.Counted))
	stop()
	f.fill(640, "small", "order", "later")
	f.run(f.projector(quick()))
	f.eventually("others pass after a restart", func() bool { return f.pub.of("small") == 1280 })
	require.Equal(t, 64, f.pub.of("acme"))
	f.resume("acme")
	f.eventually("all are sent", func() bool { return f.pub.of("acme") == 64+backlog })
	f.requireOrder()
}

// Where nothing of the paused tenant waits, rows stay in the log. In a lane in which something does they leave past it, and move.
func TestPauseMovesOnlyWhatPassesTheTenant(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.pause("acme")
	f.fill(1, "acme", "order", "waits")
	for n := range 200 {
		f.add(fmt.Sprint("k", n), "passes")
	}
	for range 2 {
		require.NoError(t, f.projector(quick()).RunOnce(t.Context()))
	}
	require.Equal(t, 200, f.pub.total())
	const itsLane = "lane IN (SELECT lane FROM outbox WHERE tenant_id = 'acme')"
	passed := f.rows("outbox_sent WHERE " + itsLane)
	require.Positive(t, passed)
	require.Equal(t, passed, f.rows("outbox_sent"))
	require.Equal(t, 200-passed, f.rows("outbox_published WHERE child <> 'outbox_sent'::regclass AND NOT "+itsLane))
	require.Equal(t, 1, f.rows("outbox_unsent"))
}

// A row that is committed late is not passed by, although nothing of the paused tenant waits.
func TestLateRowLeavesDuringAPause(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.pause("acme")
	f.add("first", "first") // the first event of a tenant makes the tenant's other events wait
	late, err := f.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = late.Rollback() })
	_, err = f.store.Add(t.Context(), late, "order", []byte("late"), event.WithAggregate("order", "a", 1), event.WithType("late"))
	require.NoError(t, err)
	for n := range 3 { // in all lanes
		f.fill(64, "small", "order", fmt.Sprint("round", n))
		require.NoError(t, f.projector(quick()).RunOnce(t.Context()))
		require.Equal(t, 1+64*(n+1), f.pub.total())
	}
	require.NoError(t, late.Commit())
	require.NoError(t, f.projector(quick()).RunOnce(t.Context()))
	require.Equal(t, 1+64*3+1, f.pub.total())
}

// A row that was refused before the pause is not tried during the pause, nor is a row that an operator replays. Later
// rows of their keys wait behind them.
func TestPausedTenantsHeldRowsStay(t *testing.T) {
	f := newFixture(t)
	f.pub.refuseWith(func(e event.Envelope) error {
		if e.Type == "poison" {
			return messaging.Permanent(errors.New("no schema"))
		}
		return nil
	})
	poison := f.add("k", "poison", event.WithTenantID("acme"))
	cfg := quick()
	require.NoError(t, f.projector(cfg).RunOnce(t.Context()))
	f.pub.refuseWith(nil)
	f.pause("acme")
	require.NoError(t, f.store.Dead().Replay(t.Context(), poison, night))
	f.add("k", "second", event.WithTenantID("acme"))
	f.add("k", "other", event.WithTenantID("small"))
	require.NoError(t, f.projector(cfg).RunOnce(t.Context()))
	require.Equal(t, []string{"other"}, f.pub.types())
	f.resume("acme")
	require.NoError(t, f.projector(cfg).RunOnce(t.Context()))
	require.Equal(t, []string{"other", "poison", "second"}, f.pub.types())
}

// A topic in trouble is tried with rows of tenants that are not paused only.
func TestNoProbeOfAPausedTenant(t *testing.T) {
	f := newFixture(t)
	var tried, others atomic.Int64
	var refused sync.Map
	f.pub.refuseWith(func(e event.Envelope) error {
		if _, again := refused.LoadOrStore(e.ID, true); e.TenantID == "acme" && !again {
			return errors.New("not now") // so that it is held
		}
		if e.TenantID == "acme" {
			tried.Add(1)
		} else {
			others.Add(1)
		}
		return &messaging.TopicError{Topic: e.Topic, Err: errors.New("terminated")}
	})
	f.fill(64, "acme", "down", "acme")
	f.fill(64, "small", "down", "small")
	p := f.projector(quick())
	f.run(p)
	f.eventually("it was tried", func() bool { return tried.Load() > 0 && f.rows("outbox_held") > 0 })
	f.pause("acme", p)
	before := others.Load()
	f.eventually("what was begun has ended, and others are tried", func() bool { return others.Load() > before+10 })
	before, others0 := tried.Load(), others.Load()
	f.eventually("others are tried", func() bool { return others.Load() > others0+10 })
	require.Equal(t, before, tried.Load())
}

// An event that expires during the pause is a dead letter when the tenant is resumed, and not before.
func TestExpiredDuringThePause(t *testing.T) {
	f := newFixture(t)
	f.pause("acme")
	f.add("k", "late", event.WithTenantID("acme"), event.WithExpiry(time.Now().Add(time.Hour)))
	f.add("k", "wanted", event.WithTenantID("acme"))
	_, err := f.db.Exec("UPDATE outbox SET expires_at = now() - interval '1 second' WHERE expires_at IS NOT NULL")
	require.NoError(t, err)
	require.NoError(t, f.projector(quick()).RunOnce(t.Context()))
	require.Equal(t, map[string]string{"late": outboxstate.StatusNew, "wanted": outboxstate.StatusNew}, f.statuses())
	f.resume("acme")
	require.NoError(t, f.projector(quick()).RunOnce(t.Context()))
	require.Equal(t, map[string]string{"late": outboxstate.StatusDead, "wanted": outboxstate.StatusSent}, f.statuses())
}

// A projector that cannot ask who is paused takes no lane.
func TestNothingIsPublishedUnasked(t *testing.T) {
	f := newFixture(t)
	f.add("k", "first")
	_, err := f.db.Exec("ALTER TABLE outbox_tenant RENAME TO elsewhere")
	require.NoError(t, err)
	require.Error(t, f.projector(quick()).RunOnce(t.Context()))
	require.Zero(t, f.pub.total())
}

// A tenant is paused and resumed again and again while it writes, its rows are on their way, and one of two projectors is restarted. No key of
// it is overtaken, and no row is lost.
func TestOrderAcrossPauses(t *testing.T) {
	f := newFixture(t)
	cfg := quick()
	cfg.Renew = 50 * time.Millisecond // so that lanes change hands
	steady := f.projector(cfg)
	f.run(steady)
	ctx, cancel := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	written := make([]int, 4)
	for n := range written {
		writers.Go(func() {
			tenant := []string{"acme", "small"}[n%2]
			for ctx.Err() == nil {
				written[n]++
				_, err := pgtest.Add(t.Context(), f.db.DB, f.store, "order", []byte("x"), event.WithTenantID(tenant),
					event.WithAggregate("order", fmt.Sprint("k", written[n]%5), 1), event.WithType("e"))
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 6 {
		stop := f.run(f.projector(cfg))
		sent := f.pub.of("acme")
		f.eventually("rows are on their way", func() bool { return f.pub.of("acme") > sent })
		f.pause("acme", steady)
		sent = f.pub.of("small")
		f.eventually("others go on", func() bool { return f.pub.of("small") > sent })
		stop()
		f.resume("acme")
	}
	cancel()
	writers.Wait()
	total := 0
	for _, n := range written {
		total += n
	}
	f.eventually("all are sent", func() bool { return f.pub.total() >= total })
	f.requireOrder()
	t.Logf("%d events", total)
}
