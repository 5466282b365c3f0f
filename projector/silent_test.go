package projector_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/messaging"
)

// mute is a publisher that gets no receipts for some topics, and waits for them as long as it may.
type mute struct {
	*recorder

	mu     sync.Mutex
	topics map[string]bool
	vain   int // calls that waited
}

func (m *mute) Publish(ctx context.Context, msgs []event.Envelope) error {
	m.mu.Lock()
	failed := map[int]error{}
	var rest []event.Envelope
	for i := range msgs {
		if m.topics[msgs[i].Topic] {
			failed[i] = messaging.ErrUnknown
		} else {
			rest = append(rest, msgs[i])
		}
	}
	if len(failed) > 0 {
		m.vain++
	}
	m.mu.Unlock()
	if err := m.recorder.Publish(ctx, rest); err != nil || len(failed) == 0 {
		return err
	}
	<-ctx.Done()
	return &messaging.PublishError{Failed: failed}
}

func (m *mute) speak() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.topics = nil
}

func (m *mute) waited() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.vain
}

const (
	topicPaused  = "the broker accepts no messages for a topic"
	workerFailed = "worker 0 failed"
)

// mutely starts a projector with batches of some size and topics that are silent.
func (f *fixture) mutely(batch int, topics ...string) (*mute, *logbook.Book) {
	f.t.Helper()
	m := &mute{recorder: f.pub, topics: map[string]bool{}}
	for _, topic := range topics {
		m.topics[topic] = true
	}
	log := &logbook.Book{}
	cfg := quick()
	cfg.Workers, cfg.BatchSize, cfg.MaxRetryAttempts, cfg.PublishTimeout = 1, batch, 1, 100*time.Millisecond
	cfg.Telemetry.Logger = slog.New(slog.NewTextHandler(log, nil))
	p := f.relay(m, cfg, f.store)
	f.run(p)
	return m, log
}

// requireUnspent demands that everything was sent, in order per key, and that no row paid for the silence.
func (f *fixture) requireUnspent(rows int) {
	f.t.Helper()
	f.eventually("all are sent", func() bool { return f.pub.total() == rows })
	last := map[string]int64{}
	for _, m := range f.pub.events() {
		require.Greater(f.t, m.Sequence, last[m.RoutingKey])
		last[m.RoutingKey] = m.Sequence
	}
	f.eventually("all are settled", func() bool {
		var n int
		require.NoError(f.t, f.db.NewRaw("SELECT count(*) FROM outbox_messages WHERE status <> 'SENT' OR retry_count > 0").Scan(f.t.Context(), &n))
		return n == 0
	})
}

// A topic that hangs looks like a broker that is away when a call has nothing else. Others are served all the same, even
// if whole batches from the heads of the lanes belong to the one that hangs.
func TestSilentTopicStarvesNoOther(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const silent = 64 * 40 // some batches
	f.fill(silent, "big", "down", "big")
	f.fill(640, "small", "up", "small")
	m, log := f.mutely(64, "down")
	f.eventually("the other topic is served", func() bool { return f.pub.total() == 640 })
	require.Positive(t, log.Count(workerFailed), "at first nobody knows")
	require.Positive(t, log.Count(topicPaused))
	f.fill(640, "late", "up", "late")
	f.store.Wake()
	f.eventually("and goes on", func() bool { return f.pub.total() == 1280 })
	m.speak()
	f.requireUnspent(silent + 1280)
}

// A topic that was silent for several calls is at the heads of all lanes. Another topic whose events come only then is served all
// the same.
func TestSilentTopicStarvesNoOtherThatComesLater(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.fill(64*5, "big", "down", "big")
	m, _ := f.mutely(64, "down")
	f.eventually("it was tried", func() bool { return m.waited() >= 2 })
	f.fill(64, "late", "up", "late")
	tried := m.waited()
	f.store.Wake()
	f.eventually("the other topic is served, or the silent one was tried often", func() bool { return f.pub.total() == 64 || m.waited() >= tried+4 })
	require.Equal(t, 64, f.pub.total())
	m.speak()
	f.requireUnspent(64*5 + 64)
}

// Where the broker gives receipts for others in the same call, there is no doubt.
func TestSilentTopicAmongOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.fill(64, "big", "down", "big")
	f.fill(64, "small", "up", "small")
	m, log := f.mutely(1000, "down")
	f.eventually("it was tried", func() bool { return m.waited() > 0 })
	f.eventually("it is left alone", func() bool { return log.Count(topicPaused) > 0 })
	m.speak()
	f.requireUnspent(128)
	require.Zero(t, log.Count(workerFailed), "the worker goes on")
}

// A broker that is away is no trouble of any topic: nobody knows better, so none is paused for longer and longer.
func TestSilentBrokerPausesNoTopic(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.fill(2000, "big", "one", "big")
	f.fill(2000, "small", "two", "small")
	m, log := f.mutely(1000, "one", "two")
	f.eventually("it was tried", func() bool { return m.waited() >= 4 })
	require.Zero(t, log.Count(topicPaused))
	require.Positive(t, log.Count(workerFailed))
	m.speak()
	f.requireUnspent(4000)
}

// Rows that are only held back behind a refused message say nothing about their topic, nor about the broker: neither is
// left alone, and the worker goes on at once. Here two tenants' orders of one number share a routing key.
func TestWhatIsBehindARefusedRowIsNoSilence(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]string{"receipts of another topic": "up", "no receipt at all": ""} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.pub.refuse = func(e event.Envelope) error {
				if e.Type == "refused" {
					return errors.New("no")
				}
				return nil
			}
			_, err := f.db.Exec(`
				INSERT INTO outbox (id, occurred_at, lane, tenant_id, topic, ordering_key, routing_key, event_type, source, payload)
				SELECT gen_random_uuid(), now(), 3, tenant, topic, tenant || '|' || number, number, type, 'test', 'x'
				FROM (VALUES ('acme', 'order', '7', 'refused'), ('shop', 'order', '7', 'behind'), ('shop', ?, '8', 'other'))
					v(tenant, topic, number, type)
				WHERE topic <> ''`, other)
			require.NoError(t, err)
			_, log := f.mutely(1000)
			f.eventually("what was behind is published", f.published("behind"))
			require.Equal(t, "DEAD", f.statuses()["refused"])
			require.Zero(t, log.Count(topicPaused))
			require.Zero(t, log.Count(workerFailed))
		})
	}
}
