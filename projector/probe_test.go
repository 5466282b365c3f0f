package projector_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/messaging"
)

// swamp is a publisher with a topic "down" that gives no receipts: a call with such rows hangs, until its deadline or until
// the swamp is drained. It keeps the topics of each call.
type swamp struct {
	*recorder

	shallow bool // a call with several rows does not hang
	drain   func()

	mu      sync.Mutex
	drained chan struct{}
	calls   [][]string
	hanging int
}

func newSwamp(r *recorder) *swamp {
	s := &swamp{recorder: r, drained: make(chan struct{})}
	s.drain = sync.OnceFunc(func() { close(s.drained) })
	return s
}

func (s *swamp) Publish(ctx context.Context, msgs []event.Envelope) error {
	topics := make([]string, len(msgs))
	for i := range msgs {
		topics[i] = msgs[i].Topic
	}
	s.mu.Lock()
	s.calls = append(s.calls, topics)
	s.mu.Unlock()
	if !slices.Contains(topics, "down") || s.dry() {
		return s.recorder.Publish(ctx, msgs)
	}
	failed := map[int]error{}
	var rest []event.Envelope
	for i := range msgs {
		if topics[i] == "down" {
			failed[i] = messaging.ErrUnknown
		} else {
			rest = append(rest, msgs[i])
		}
	}
	if err := s.recorder.Publish(ctx, rest); err != nil {
		return err
	}
	if s.shallow && len(msgs) > 1 {
		return &messaging.PublishError{Failed: failed}
	}
	s.hang(1)
	defer s.hang(-1)
	select {
	case <-ctx.Done():
	case <-s.drained:
	}
	return &messaging.PublishError{Failed: failed}
}

func (s *swamp) hang(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hanging += n
}

func (s *swamp) dry() bool {
	select {
	case <-s.drained:
		return true
	default:
		return false
	}
}

// alone returns the calls with nothing but rows of the topic, mixed those with others as well, and how many hang now.
func (s *swamp) state() (alone [][]string, mixed, hanging int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, topics := range s.calls {
		switch {
		case !slices.Contains(topics, "down"):
		case slices.Contains(topics, "up"):
			mixed++
		default:
			alone = append(alone, topics)
		}
	}
	return alone, mixed, s.hanging
}

// A topic that hangs is found out once, by each worker at most. From then on one row of it is tried alone from time to
// time, and nothing else waits for that. When it takes that row, everything is sent, in order.
func TestHangingTopicIsProbedAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := newSwamp(f.pub)
	log := &logbook.Book{}
	cfg := quick()
	cfg.Telemetry.Logger = slog.New(slog.NewTextHandler(log, nil))
	cfg.PublishTimeout = 200 * time.Millisecond
	p := f.relay(s, cfg, f.store)
	f.fill(640, "acme", "down", "bad")
	f.fill(640, "acme", "up", "good")
	f.run(p)
	sent := 640
	f.eventually("the topic is probed", func() bool {
		f.fill(64, "acme", "up", "good")
		sent += 64
		f.store.Wake()
		f.eventually("the others go on", func() bool { return f.pub.total() == sent })
		alone, _, _ := s.state()
		return log.Count(topicPaused) >= 3 && len(alone) > 0 // each worker may have found it out, and none has probed it yet
	})
	alone, mixed, _ := s.state()
	require.LessOrEqual(t, mixed, 3, "each of the three workers may have had one on its way when the topic was found out")
	for _, topics := range alone {
		require.Len(t, topics, 1)
	}
	s.drain()
	sent += 640
	f.requireUnspent(sent)
}

// While a probe hangs, every lane goes on, also the lane of the probe, and no other probe begins.
func TestProbeHoldsUpNoLane(t *testing.T) {
	t.Parallel()
	for name, held := range map[string]bool{"fresh": false, "held": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			s := newSwamp(f.pub)
			s.shallow = true
			cfg := quick()
			cfg.Lease, cfg.PublishTimeout = 3*time.Hour, time.Hour
			p := f.relay(s, cfg, f.store)
			f.fill(128, "acme", "down", "bad")
			if held {
				f.holdAll()
			}
			f.fill(64, "acme", "up", "good")
			f.run(p)
			t.Cleanup(s.drain)
			sent := 64
			probed := func() bool { // not: by the last call, which another worker may have decided on before the topic was paused
				_, _, hanging := s.state()
				return hanging == 1
			}
			f.eventually("a probe is on its way", func() bool {
				before := probed() // when it is, what each worker had on its way has ended as soon as more is sent of each lane
				f.fill(64, "acme", "up", "good")
				sent += 64
				f.store.Wake()
				f.eventually("the others go on", func() bool { return f.pub.total() == sent })
				return before && probed()
			})
			before, _, _ := s.state()
			f.fill(64*10, "acme", "up", "good")
			sent += 64 * 10
			f.store.Wake()
			f.eventually("all lanes go on", func() bool { return f.pub.total() == sent })
			after, _, _ := s.state()
			require.True(t, probed(), "it was on its way all along")
			require.Len(t, after, len(before))
			s.drain()
			f.requireUnspent(sent + 128)
		})
	}
}

// holdAll makes held rows of all that wait in the lanes: heads are due, the others wait behind them.
func (f *fixture) holdAll() {
	f.t.Helper()
	_, err := f.db.Exec(`
		WITH gone AS (DELETE FROM outbox RETURNING *),
		block AS (
			INSERT INTO outbox_block (lane, ordering_key, head_seq, state)
			SELECT lane, ordering_key, min(seq), 'draining' FROM gone GROUP BY lane, ordering_key)
		INSERT INTO outbox_held SELECT *, CASE WHEN seq = min(seq) OVER (PARTITION BY ordering_key) THEN now() ELSE 'infinity' END FROM gone`)
	require.NoError(f.t, err)
}

// What a probe hears of its own row alone says nothing of the topic: the next row is tried at once. What needs no broker,
// because it has expired or waits for its time, is moved out of the way.
func TestProbeOfARowThatCannotBeSent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var down sync.Map
	down.Store("down", true)
	f.pub.refuse = func(e event.Envelope) error {
		if _, is := down.Load(e.Topic); is {
			return &messaging.TopicError{Topic: e.Topic, Err: errors.New("terminated")}
		}
		if strings.HasPrefix(e.Type, "bad-") && len(e.Type) == 5 { // one digit
			return messaging.Permanent(errors.New("never"))
		}
		return nil
	}
	f.fill(640, "acme", "down", "bad")
	f.fill(64, "acme", "up", "good")
	log := &logbook.Book{}
	cfg := quick()
	cfg.ContinueAfterDead = []string{"*"}
	cfg.Telemetry.Logger = slog.New(slog.NewTextHandler(log, nil))
	f.run(f.projector(cfg))
	f.eventually("it was probed", func() bool { return log.Count(topicPaused) >= 3 })
	_, err := f.db.Exec("UPDATE outbox SET expires_at = now() - interval '1 second' WHERE topic = 'down' AND seq % 10 = 3")
	require.NoError(t, err)
	down.Delete("down")
	f.eventually("nothing waits any more", func() bool {
		var n int
		require.NoError(t, f.db.NewRaw("SELECT count(*) FROM outbox_messages WHERE status NOT IN ('SENT', 'DEAD')").Scan(t.Context(), &n))
		return n == 0
	})
	require.Subset(t, f.pub.types(), []string{"good-1", "bad-10", "bad-639"})
}

// A projector that is stopped waits for its probe before it gives its lanes away: the next owner may send that row.
func TestProbeEndsBeforeItsLaneIsHandedBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := newSwamp(f.pub)
	s.shallow = true
	var unregistered, hanging atomic.Int64
	store := f.through(func(statement string, _ bool) {
		if strings.Contains(statement, "DELETE FROM outbox_projector") {
			_, _, n := s.state()
			hanging.Add(int64(n))
			unregistered.Add(1)
		}
	}, nil)
	cfg := quick()
	cfg.Lease, cfg.PublishTimeout = 3*time.Hour, time.Hour
	p := f.relay(s, cfg, store)
	f.fill(1, "acme", "down", "bad")
	f.fill(64, "acme", "up", "good")
	stop := f.run(p)
	t.Cleanup(s.drain)
	f.eventually("a probe is on its way", func() bool {
		alone, _, n := s.state()
		return n == 1 && len(alone) > 0
	})
	time.AfterFunc(300*time.Millisecond, s.drain) // a slow probe: an end that does not wait for it comes first
	stop()
	require.Positive(t, unregistered.Load())
	require.Zero(t, hanging.Load())
	var owned int
	require.NoError(t, f.db.NewRaw("SELECT count(*) FROM outbox_lane WHERE owner IS NOT NULL").Scan(t.Context(), &owned))
	require.Zero(t, owned)
}

// A topic in trouble has more held rows than one look reads, all due at the same time. The held row of another topic behind them is sent
// nevertheless.
func TestHeldRowsOfATopicInTroubleStarveNoOther(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.pub.refuse = func(e event.Envelope) error {
		if e.Topic == "down" {
			return &messaging.TopicError{Topic: e.Topic, Err: errors.New("terminated")}
		}
		return nil
	}
	const rows = 3*lanedb.ScanWindow + 7
	_, err := f.db.Exec(`
		WITH row AS (
			INSERT INTO outbox (id, occurred_at, lane, tenant_id, topic, event_type, source, payload)
			SELECT gen_random_uuid(), now(), 3, 'acme', CASE WHEN i < ?0 THEN 'down' ELSE 'up' END, 'held', 'test', 'x'
			FROM generate_series(0, ?0) i RETURNING *)
		INSERT INTO outbox_held SELECT *, '2026-01-01' FROM row`, rows)
	require.NoError(t, err)
	_, err = f.db.Exec("DELETE FROM outbox")
	require.NoError(t, err)
	f.run(f.projector(quick()))
	f.eventually("the other topic is served", func() bool { return f.pub.total() == 1 })
	f.pub.refuseWith(nil)
	f.eventually("all are sent", func() bool { return f.pub.total() == rows+1 })
}

// While a row is on its way to try a topic, the server crashes and gives the row's number to another one. That one is published,
// and not taken for the row that was.
func TestProbeSettlesNothingOnAnotherServer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.add("a", "first")
	calls, crashed := 0, make(chan struct{})
	onItsWay := make(chan struct{})
	f.pub.refuseWith(func(e event.Envelope) error {
		switch calls++; calls {
		case 1:
			return &messaging.TopicError{Topic: e.Topic, Err: errors.New("not now")}
		case 2:
			close(onItsWay)
			<-crashed
		}
		return nil
	})
	cfg := quick()
	cfg.Workers = 1
	f.run(f.projector(cfg))
	<-onItsWay
	_, err := f.db.Exec("WITH e AS (DELETE FROM outbox_incarnation) UPDATE outbox SET id = gen_random_uuid(), event_type = 'second'")
	require.NoError(t, err)
	f.eventually("the worker has looked", func() bool { return f.rows("outbox_incarnation") == 1 })
	close(crashed)
	f.eventually("all are settled", func() bool { return f.rows("outbox_unsent") == 0 })
	require.Equal(t, []string{"first", "second"}, f.pub.types())
}
