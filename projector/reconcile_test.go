package projector_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/nightly"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/outbox"
)

// A row that waits for a head which is gone leaves without anybody's help, and the order of its key stays.
func TestProjectorReconciles(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.pub.refuse = func(e event.Envelope) error {
		if e.Type == "a1" {
			return errors.New("not now")
		}
		return nil
	}
	cfg := quick()
	cfg.Retry.Delay, cfg.Retry.MaxDelay, cfg.CleanInterval = time.Hour, time.Hour, 50*time.Millisecond
	f.run(f.projector(cfg))
	f.add("a", "a1")
	f.add("a", "a2")
	f.add("a", "a3")
	f.eventually("they wait", func() bool {
		var n int
		require.NoError(t, f.db.QueryRow("SELECT count(*) FROM outbox_held").Scan(&n))
		return n == 3
	})
	_, err := f.db.Exec("DELETE FROM outbox_held WHERE event_type = 'a1'")
	require.NoError(t, err)
	f.eventually("a3 is sent", func() bool { return f.statuses()["a3"] == outbox.StatusSent })
	// An owner that publishes before it hears of the repair does so again after it.
	require.Equal(t, []string{"a2", "a3"}, f.pub.types()[:2])
}

// Two projectors, refusals, dead letters and operators: whatever the moment, nothing looks wrong, and the lanes of a
// pass that found nothing were not touched.
func TestReconcileFindsNothingWrongBesideBusyProjectors(t *testing.T) {
	for seed := range nightly.Seeds(t, 1, 3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { reconcileBesideProjectors(t, throws(seed, 0)) })
	}
}

func reconcileBesideProjectors(t *testing.T, d *dice) {
	f := newFixture(t)
	require.NoError(t, f.store.EnsurePartitions(t.Context()))
	f.pub.refuse = func(event.Envelope) error {
		switch n := d.below(20); {
		case n == 0:
			return messaging.Permanent(errNotNow)
		case n < 4:
			return errNotNow
		default:
			return nil
		}
	}
	for _, name := range []string{"one", "two"} {
		cfg := quick()
		cfg.Name, cfg.CleanInterval = name, -1
		f.run(f.projector(cfg))
	}
	by := outbox.By{Actor: "ann", Reason: "a test"}
	n := nightly.N(500, 1500)
	passes, dead, held := 0, int64(0), int64(0)
	for i := range n {
		f.add(fmt.Sprint(i%40), fmt.Sprint(i))
		if i%10 > 0 {
			continue
		}
		f.store.Wake()
		found, err := f.store.Reconcile(context.Background())
		require.NoError(t, err)
		require.Zero(t, found)
		passes++
		if i%50 == 0 {
			st, err := f.store.Stats(t.Context())
			require.NoError(t, err)
			dead, held = dead+st.Dead, held+st.Held
			_, err = f.store.ReplayAll(t.Context(), outbox.DeadFilter{}, by, nil)
			require.NoError(t, err)
		}
	}
	f.eventually("all is sent", func() bool {
		found, err := f.store.Reconcile(context.Background())
		require.NoError(t, err)
		require.Zero(t, found)
		_, err = f.store.ReplayAll(t.Context(), outbox.DeadFilter{}, by, nil)
		require.NoError(t, err)
		var sent int
		require.NoError(t, f.db.QueryRow("SELECT count(*) FROM outbox_messages WHERE status = 'SENT'").Scan(&sent))
		return sent == n
	})
	require.NotZero(t, dead)
	require.NotZero(t, held)
	require.Positive(t, passes)
}
