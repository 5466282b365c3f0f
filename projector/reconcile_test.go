package projector_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/nightly"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox/state"
)

// A lane whose entry is gone is entered again without anybody's help, and its events leave.
func TestProjectorReconciles(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, err := f.db.Exec("DELETE FROM outbox_lane")
	require.NoError(t, err)
	f.add("a", "a1")
	cfg := quick()
	cfg.CleanInterval = 50 * time.Millisecond
	f.run(f.projector(cfg))
	f.eventually("a1 is sent", func() bool { return f.statuses()["a1"] == state.StatusSent })
}

// Two projectors, refusals, dead letters and operators: whatever the moment, nothing looks wrong.
func TestNoDisorderBesideBusyProjectors(t *testing.T) {
	for seed := range nightly.Seeds(t, 1, 3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { disorderBesideProjectors(t, throws(seed, 0)) })
	}
}

func disorderBesideProjectors(t *testing.T, d *dice) {
	f := newFixture(t)
	require.NoError(t, f.store.Upkeep().EnsurePartitions(t.Context()))
	var refused atomic.Int32
	f.pub.refuse = func(event.Envelope) error {
		switch n := d.below(20); {
		case n == 0:
			return messaging.Permanent(errNotNow)
		case n < 4:
			refused.Add(1)
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
	by := operator.By{Actor: "ann", Reason: "a test"}
	n := nightly.N(500, 1500)
	passes, dead := 0, int64(0)
	replayed := func() {
		n, err := f.store.Dead().ReplayAll(t.Context(), operator.DeadFilter{}, by, nil)
		require.NoError(t, err)
		dead += n
	}
	for i := range n {
		f.add(fmt.Sprint(i%40), fmt.Sprint(i))
		if i%10 > 0 {
			continue
		}
		f.store.Wake()
		found, err := f.store.State().Disorder(context.Background())
		require.NoError(t, err)
		require.Empty(t, found)
		passes++
		if i%50 == 0 {
			replayed()
		}
	}
	f.eventually("all is sent", func() bool {
		found, err := f.store.State().Disorder(context.Background())
		require.NoError(t, err)
		require.Empty(t, found)
		replayed()
		var sent int
		require.NoError(t, f.db.QueryRow("SELECT count(*) FROM outbox_messages WHERE status = 'SENT'").Scan(&sent))
		return sent == n
	})
	require.NotZero(t, dead)
	require.NotZero(t, refused.Load())
	require.Positive(t, passes)
}
