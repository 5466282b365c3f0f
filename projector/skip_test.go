package projector_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/outbox"
)

// fill inserts n rows of one key per lane, as a backlog. Keys and types begin with name.
func (f *fixture) fill(n int, tenant, topic, name string) {
	f.t.Helper()
	_, err := f.db.Exec(`INSERT INTO outbox (id, occurred_at, lane, tenant_id, topic, ordering_key, routing_key, event_type, source, payload)
		SELECT gen_random_uuid(), now(), i % 64, ?, ?, ? || '|' || i % 64, ? || '|' || i % 64, ? || '-' || i, 'test', 'x' FROM generate_series(0, ? - 1) i`,
		tenant, topic, name, name, name, n)
	require.NoError(f.t, err)
	_, err = f.db.Exec("INSERT INTO outbox_tenant (tenant_id) VALUES (?) ON CONFLICT DO NOTHING", tenant)
	require.NoError(f.t, err)
}

// Behind more rows of a topic in trouble than a scan looks at in one go, other topics are served all the same.
func TestTopicInTroubleStarvesNoOther(t *testing.T) {
	f := newFixture(t)
	f.pub.refuse = func(e event.Envelope) error {
		if e.Topic == "down" {
			return &messaging.TopicError{Topic: "down", Err: fmt.Errorf("terminated")}
		}
		return nil
	}
	// One tenant: what passes the backlog of another one must not help here.
	f.fill(64*(2*outbox.ScanWindow+7), "acme", "down", "big")
	f.fill(640, "acme", "up", "small")
	f.run(f.projector(quick()))
	f.eventually("the other topic is served", func() bool { return len(f.pub.types()) == 640 })
	// A new row under a key of the topic in trouble waits for it.
	_, err := f.db.Exec(`INSERT INTO outbox (id, occurred_at, lane, tenant_id, topic, ordering_key, routing_key, event_type, source, payload)
		VALUES (gen_random_uuid(), now(), 3, 'acme', 'up', 'big|3', 'big|3', 'behind', 'test', 'x'),
			(gen_random_uuid(), now(), 3, 'acme', 'up', 'small|3', 'small|3', 'free', 'test', 'x')`)
	require.NoError(t, err)
	f.store.Wake()
	f.eventually("the free one passes", func() bool { return len(f.pub.types()) == 641 })
	require.NotContains(t, f.pub.types(), "behind")
	f.pub.refuseWith(nil)
	total := 64*(2*outbox.ScanWindow+7) + 642
	f.eventually("all are sent", func() bool { return len(f.pub.types()) == total })
	types := f.pub.types()
	last := ""
	for _, name := range types {
		if name == "behind" {
			require.NotEmpty(t, last)
		}
		last = name
	}
	require.Equal(t, 1, count(types, "behind"))
	require.Greater(t, index(types, "behind"), index(types, fmt.Sprintf("big-%d", 64*(2*outbox.ScanWindow+6)+3)), "in order per key")
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
	f.eventually("a part is sent", func() bool { return len(f.pub.types()) >= 64*50 })
	lanes := map[string]int{}
	f.pub.mu.Lock()
	defer f.pub.mu.Unlock()
	for _, m := range f.pub.taken[:64*50] {
		lanes[m.RoutingKey]++
	}
	require.Len(t, lanes, 64)
	for lane, n := range lanes {
		require.GreaterOrEqual(t, n, 25, lane)
	}
}

// A tenant's backlog is passed by the rows of others that come after it.
func TestBacklogOfOneTenantDelaysNoOther(t *testing.T) {
	f := newFixture(t)
	const backlog = 64 * 1000
	f.fill(backlog, "big", "order", "big")
	f.fill(128, "small", "order", "small")
	f.run(f.projector(quick()))
	f.eventually("all are sent", func() bool { return len(f.pub.types()) == backlog+128 })
	types := f.pub.types()
	latest := 0
	for i, name := range types {
		if len(name) > 5 && name[:5] == "small" {
			latest = i
		}
	}
	require.Less(t, latest, backlog/2, "nobody of the small tenant waited for half of the backlog")
	next := map[string]int{}
	for _, m := range f.pub.taken {
		require.GreaterOrEqual(t, m.Sequence, int64(next[m.RoutingKey]), "in order per key")
		next[m.RoutingKey] = int(m.Sequence)
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
