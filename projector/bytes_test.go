package projector_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
)

// weighing is a publisher that notes the largest call, in bytes.
type weighing struct {
	*recorder

	most atomic.Int64
}

func (w *weighing) Publish(ctx context.Context, msgs []event.Envelope) error {
	n := int64(0)
	for i := range msgs {
		n += int64(len(msgs[i].Payload))
	}
	w.most.Store(max(w.most.Load(), n)) // the test has one worker
	return w.recorder.Publish(ctx, msgs)
}

// A publication is bounded in bytes, however many rows wait: fresh ones, those behind a topic in trouble, and held ones.
func TestPublicationIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	const rows, each, bound = 300, 10_000, 100_000
	for _, kind := range []string{"fresh", "behind a topic in trouble", "held"} {
		t.Run(kind, func(t *testing.T) {
			f := newFixture(t)
			var committed []string
			add := func(topic string, n int) {
				for i := range n {
					id, err := pgtest.Add(t.Context(), f.db.DB, f.store, topic, bytes.Repeat([]byte("x"), each),
						event.WithAggregate("order", fmt.Sprint("k", i%30), 1), event.WithOrderingKey(fmt.Sprint(topic, i%30)), event.WithType(topic))
					require.NoError(t, err)
					committed = append(committed, id)
				}
			}
			trouble := make(chan struct{})
			f.pub.refuseWith(func(e event.Envelope) error {
				select {
				case <-trouble:
					return nil
				default:
				}
				switch {
				case kind == "held":
					return errors.New("not now")
				case e.Type == "down":
					return &messaging.TopicError{Topic: "down", Err: errors.New("down")}
				}
				return nil
			})
			if kind == "behind a topic in trouble" {
				add("down", 30)
			}
			add("up", rows)
			pub := &weighing{recorder: f.pub}
			cfg := quick()
			cfg.Workers, cfg.BatchBytes, cfg.MaxRetryAttempts = 1, bound, -1
			cfg.Retry.Delay, cfg.Retry.MaxDelay = time.Second, time.Second
			f.run(f.relay(pub, cfg, f.store))
			switch kind {
			case "held":
				f.eventually("all are held", func() bool { return f.rows("outbox") == 0 })
			case "behind a topic in trouble":
				f.eventually("the other topic is served", func() bool { return f.pub.distinct() == rows })
			}
			close(trouble)
			f.eventually("all are sent", func() bool { return f.rows("outbox_messages WHERE status = 'SENT'") == len(committed) })
			f.pub.requireAll(t, committed)
			require.Positive(t, pub.most.Load())
			require.LessOrEqual(t, pub.most.Load(), int64(bound))
		})
	}
}

// Held rows that may have killed a projector go together at first, and within the bound too.
func TestHeldRowsOfAKilledProjectorAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const rows, each, bound = 60, 10_000, 100_000
	_, err := f.db.Exec(`WITH row AS (
			INSERT INTO outbox (id, occurred_at, lane, tenant_id, topic, event_type, source, payload)
			SELECT gen_random_uuid(), now(), i % 64, 'a', 'order', 'e', 'test', convert_to(repeat('x', ?), 'UTF8') FROM generate_series(1, ?) i RETURNING *)
		INSERT INTO outbox_held SELECT *, now() - interval '1 minute' FROM row`, each, rows)
	require.NoError(t, err)
	_, err = f.db.Exec("DELETE FROM outbox")
	require.NoError(t, err)
	require.NoError(t, f.changeLanes("owner = 'killed', lease_until = now() - interval '1 second'"))
	pub := &weighing{recorder: f.pub}
	cfg := quick()
	cfg.Workers, cfg.BatchBytes = 1, bound
	require.NoError(t, f.relay(pub, cfg, f.store).RunOnce(t.Context()))
	require.Equal(t, rows, f.pub.total())
	require.LessOrEqual(t, pub.most.Load(), int64(bound))
}

// A bound of fewer bytes than a worker has lanes is a bound.
func TestSmallBoundInBytesIsABound(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for n := range 100 {
		f.add(fmt.Sprint("k", n), "12345")
	}
	pub := &weighing{recorder: f.pub}
	cfg := quick()
	cfg.Workers, cfg.BatchBytes = 1, 10
	require.NoError(t, f.relay(pub, cfg, f.store).RunOnce(t.Context()))
	require.Equal(t, 100, f.pub.total())
	require.EqualValues(t, 10, pub.most.Load())
}

func (r *recorder) requireAll(t *testing.T, committed []string) {
	t.Helper()
	var ids []string
	for _, m := range r.events() {
		ids = append(ids, m.ID)
	}
	require.ElementsMatch(t, committed, ids)
}
