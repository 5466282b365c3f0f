package projector_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/nightly"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/projector"
)

// fill inserts n rows of one key per lane, as a backlog. Keys and types begin with name.
func (f *fixture) fill(n int, tenant, topic, name string) {
	f.t.Helper()
	f.fillIn(f.db, n, tenant, topic, name)
}

// fillIn is fill in a transaction. The tenant is entered before its first row becomes visible, as each writer does.
func (f *fixture) fillIn(tx bun.IDB, n int, tenant, topic, name string) {
	f.t.Helper()
	f.fillLanes(tx, 64, n, tenant, topic, name)
}

// fillLanes is fillIn for the first lanes alone.
func (f *fixture) fillLanes(tx bun.IDB, lanes, n int, tenant, topic, name string) {
	f.t.Helper()
	_, err := f.db.Exec("INSERT INTO outbox_tenant (tenant_id) VALUES (?) ON CONFLICT DO NOTHING", tenant)
	require.NoError(f.t, err)
	_, err = tx.ExecContext(f.t.Context(), `INSERT INTO outbox (id, occurred_at, lane, tenant_id, topic, ordering_key, routing_key, event_type, source, payload)
		SELECT gen_random_uuid(), now(), i % ?, ?, ?, ? || '|' || i % ?, ? || '|' || i % ?, ? || '-' || i, 'test', 'x' FROM generate_series(0, ? - 1) i`,
		lanes, tenant, topic, name, lanes, name, lanes, name, n)
	require.NoError(f.t, err)
}

// A topic in trouble has more rows than one scan looks at. The events of other topics behind them are published nevertheless.
func TestTopicInTroubleStarvesNoOther(t *testing.T) {
	f := newFixture(t)
	f.pub.refuse = func(e event.Envelope) error {
		if e.Topic == "down" {
			return &messaging.TopicError{Topic: "down", Err: fmt.Errorf("terminated")}
		}
		return nil
	}
	// One tenant: what passes the backlog of another one must not help here.
	f.fill(64*(2*lanedb.ScanWindow+7), "acme", "down", "big")
	f.fill(640, "acme", "up", "small")
	f.run(f.projector(quick()))
	f.eventually("the other topic is served", func() bool { return f.pub.total() == 640 })
	// A new row under a key of the topic in trouble waits for it.
	_, err := f.db.Exec(`INSERT INTO outbox (id, occurred_at, lane, tenant_id, topic, ordering_key, routing_key, event_type, source, payload)
		VALUES (gen_random_uuid(), now(), 3, 'acme', 'up', 'big|3', 'big|3', 'behind', 'test', 'x'),
			(gen_random_uuid(), now(), 3, 'acme', 'up', 'small|3', 'small|3', 'free', 'test', 'x')`)
	require.NoError(t, err)
	f.store.Wake()
	f.eventually("the free one passes", func() bool { return f.pub.total() == 641 })
	require.NotContains(t, f.pub.types(), "behind")
	f.pub.refuseWith(nil)
	total := 64*(2*lanedb.ScanWindow+7) + 642
	f.eventually("all are sent", func() bool { return f.pub.total() == total })
	types := f.pub.types()
	last := ""
	for _, name := range types {
		if name == "behind" {
			require.NotEmpty(t, last)
		}
		last = name
	}
	require.Equal(t, 1, count(types, "behind"))
	require.Greater(t, index(types, "behind"), index(types, fmt.Sprintf("big-%d", 64*(2*lanedb.ScanWindow+6)+3)), "in order per key")
}

// While a topic is in trouble, no lane waits until the backlog of another one is out.
func TestTopicInTroubleStarvesNoLane(t *testing.T) {
	f := newFixture(t)
	f.pub.refuse = func(e event.Envelope) error {
		if e.Topic == "down" {
			return &messaging.TopicError{Topic: "down", Err: fmt.Errorf("terminated")}
		}
		return nil
	}
	f.fill(64, "acme", "down", "bad")
	f.fill(64*200, "acme", "up", "good")
	cfg := quick()
	cfg.Workers, cfg.BatchSize = 1, 64
	f.run(f.projector(cfg))
	f.eventually("a part is sent", func() bool { return f.pub.total() >= 64*50 })
	lanes := map[string]int{}
	for _, m := range f.pub.events()[:64*50] {
		lanes[m.RoutingKey]++
	}
	require.Len(t, lanes, 64)
	for lane, n := range lanes {
		require.GreaterOrEqual(t, n, 25, lane)
	}
}

// The rows of other tenants overtake a tenant's backlog.
func TestBacklogOfOneTenantDelaysNoOther(t *testing.T) {
	f := newFixture(t)
	backlog := 64 * nightly.N(lanedb.ScanWindow+100, 2*lanedb.ScanWindow) // a search has to go on beyond its window
	f.fill(backlog, "big", "order", "big")
	f.fill(128, "small", "order", "small")
	lift := f.outage()
	p := f.projector(quick())
	f.run(p)
	f.eventually("the lanes may be searched", func() bool { return projector.Mark(p) >= int64(backlog+128) })
	lift()
	f.eventually("all are sent", func() bool { return f.pub.total() == backlog+128 })
	require.Less(t, f.pub.before("small", "big"), backlog/2, "the small tenant waited for the big one")
	f.pub.requireRising(t)
}

// A few large rows are a backlog too: each batch is full by its bytes, long before it is full by its rows. The rows of
// another tenant overtake them, also while a topic is in trouble.
func TestBacklogOfLargeRowsDelaysNoOther(t *testing.T) {
	for name, topic := range map[string]string{"all topics sound": "order", "a topic paused": "down"} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			var hold atomic.Bool
			var refused atomic.Int64
			f.pub.refuse = func(e event.Envelope) error {
				switch {
				case hold.Load():
					return messaging.ErrBrokerDown
				case e.Topic == "down":
					refused.Add(1)
					return &messaging.TopicError{Topic: "down", Err: errors.New("terminated")}
				default:
					return nil
				}
			}
			cfg := quick()
			cfg.Workers, cfg.BatchBytes = 1, 20_000
			p := f.projector(cfg)
			f.run(p)
			f.fill(64, "other", topic, "other")
			f.eventually("the topic is known", func() bool { return f.pub.of("other") == 64 || refused.Load() > 0 })
			hold.Store(true)
			const backlog = 64 * 10
			f.fill(backlog, "big", "order", "big")
			_, err := f.db.Exec("UPDATE outbox SET payload = convert_to(repeat('x', 2000), 'UTF8') WHERE tenant_id = 'big'") // ten fill a batch
			require.NoError(t, err)
			f.fill(64, "small", "order", "small")
			f.eventually("the lanes may be searched", func() bool { return projector.Mark(p) >= 64+backlog+64 })
			hold.Store(false)
			f.eventually("all are sent", func() bool { return f.pub.of("big", "small") == backlog+64 })
			require.Less(t, f.pub.before("small", "big"), backlog/2, "the small tenant waited for the big one")
		})
	}
}

func count(list []string, what string) (n int) {
	for _, s := range list {
		if s == what {
			n++
		}
	}
	return n
}

func index(list []string, what string) int {
	for i, s := range list {
		if s == what {
			return i
		}
	}
	return -1
}

// before returns how many rows of another tenant arrived before the last one of a tenant in the same lane. Lanes are not
// compared with each other: of two workers one may have slept while the other was through with its lanes.
func (r *recorder) before(tenant, other string) (before int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	others, last := map[string]int{}, map[string]int{}
	for _, m := range r.taken {
		_, lane, _ := strings.Cut(m.RoutingKey, "|") // see fill
		switch m.TenantID {
		case other:
			others[lane]++
		case tenant:
			last[lane] = others[lane]
		}
	}
	for _, n := range last {
		before += n
	}
	return before
}

// requireRising demands that the rows of fill arrived once each, and in order per key.
func (r *recorder) requireRising(t *testing.T) {
	t.Helper()
	last := map[string]int64{}
	for _, m := range r.events() {
		require.Greater(t, m.Sequence, last[m.RoutingKey], "in order per key")
		last[m.RoutingKey] = m.Sequence
	}
}

// turns returns, for each lane, the tenants in the order in which their rows arrived. The number after a tenant is how many rows of the lane had
// arrived before.
func (r *recorder) turns() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	turns, latest, rows := map[string]string{}, map[string]string{}, map[string]int{}
	for _, m := range r.taken {
		_, lane, _ := strings.Cut(m.RoutingKey, "|") // see fill
		if latest[lane] != m.TenantID {
			turns[lane] += fmt.Sprintf(" %s %d", m.TenantID, rows[lane])
			latest[lane] = m.TenantID
		}
		rows[lane]++
	}
	return turns
}

// Behind the backlogs of two tenants a third one waits for neither, and the second one does not wait for the first.
func TestBacklogsOfTwoTenantsDelayNoThird(t *testing.T) {
	for name, topic := range map[string]string{"all topics sound": "order", "a topic paused": "down"} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			var down atomic.Bool // the broker
			var refused atomic.Int64
			f.pub.refuse = func(e event.Envelope) error {
				switch {
				case down.Load():
					return messaging.ErrBrokerDown
				case e.Topic == "down":
					refused.Add(1)
					return &messaging.TopicError{Topic: "down", Err: fmt.Errorf("terminated")}
				default:
					return nil
				}
			}
			cfg := quick()
			// Two or three rows of a lane, because three workers share the lanes. A turn of the second tenant lasts as long as that of the heads, and a
			// busy machine may do several searches in it.
			cfg.BatchSize = 64
			p := f.projector(cfg)
			f.run(p)
			f.fill(64, "other", topic, "other")
			f.eventually("the topic is known", func() bool { return f.pub.of("other") == 64 || refused.Load() > 0 })
			down.Store(true)
			first, second := 64*nightly.N(100, 400), 64*nightly.N(50, 200)
			f.fill(first, "first", "order", "first")
			f.fill(second, "second", "order", "second")
			f.fill(128, "third", "order", "third")
			f.eventually("the lanes may be searched", func() bool { return projector.Mark(p) >= int64(64+first+second+128) })
			down.Store(false)
			f.eventually("all are sent", func() bool { return f.pub.of("first", "second", "third") == first+second+128 })
			require.Less(t, f.pub.before("third", "first"), first/2, "the third tenant waited for the first one: %v", f.pub.turns())
			require.Less(t, f.pub.before("third", "second"), second/2, "the third tenant waited for the second one: %v", f.pub.turns())
			require.Greater(t, f.pub.before("first", "second"), second/2, "the second tenant waited for the first one: %v", f.pub.turns())
			f.pub.requireRising(t)
		})
	}
}

func (r *recorder) of(tenants ...string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.taken {
		if slices.Contains(tenants, r.taken[i].TenantID) {
			n++
		}
	}
	return n
}

// While a transaction that writes is open no row is passed for good. What is behind more rows of a topic in trouble than one
// search looks at leaves all the same, and what is behind one of them under its key does not.
func TestTopicInTroubleStarvesNoOtherBesideAnOpenTransaction(t *testing.T) {
	f := newFixture(t)
	f.pub.refuse = func(e event.Envelope) error {
		if e.Topic == "down" {
			return &messaging.TopicError{Topic: "down", Err: errors.New("not now")}
		}
		return nil
	}
	f.open()
	add := func(n int, topic, key, name string) {
		_, err := f.db.Exec(`INSERT INTO outbox (id, occurred_at, lane, tenant_id, topic, ordering_key, routing_key, event_type, source, payload)
			SELECT gen_random_uuid(), now(), 3, 'a', ?, ? || i, ? || i, ?, 'test', 'x' FROM generate_series(1, ?) i`, topic, key, key, name, n)
		require.NoError(t, err)
	}
	add(3*lanedb.ScanWindow, "down", "k", "down")
	add(2, "up", "k", "behind")
	add(2, "up", "other", "free")
	f.run(f.projector(quick()))
	f.eventually("both of the other topic are sent", func() bool { return f.pub.total() == 2 })
	require.Equal(t, []string{"free", "free"}, f.pub.types())
}
