package projector_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
)

// Operators replay in small batches while the relay runs and rows are added: per key everything leaves in its order.
func TestReplayOfManyWhileTheRelayRunsKeepsOrder(t *testing.T) {
	t.Parallel()
	const keys, rows = 12, 5
	f := newFixture(t)
	f.pub.refuse = func(event.Envelope) error { return messaging.Permanent(errors.New("never")) }
	add := func(from, to int) {
		for i := from; i < to; i++ {
			for k := range keys {
				f.add(fmt.Sprint("k", k), fmt.Sprintf("k%02d-%02d", k, i))
			}
		}
	}
	add(0, rows)
	f.run(f.projector(quick()))
	f.eventually("every head is dead", func() bool {
		n, err := f.store.Dead().Count(t.Context(), operator.DeadFilter{})
		return err == nil && n == keys
	})
	f.pub.refuseWith(nil)
	replayed, err := f.store.Dead().ReplayAll(t.Context(), operator.DeadFilter{}, operator.By{Actor: "ann"}, &operator.Bulk{
		BatchSize: 5, Progress: func(done int64) { add(rows+int(done), rows+int(done)+1) },
	})
	require.NoError(t, err)
	require.EqualValues(t, keys, replayed)
	f.eventually("all have left", func() bool {
		seen := map[string]bool{}
		for _, name := range f.pub.types() {
			seen[name] = true
		}
		return len(seen) == keys*(rows+3)
	})
	// A replay fences a settle that is under way, and its rows are sent once more; the inbox drops those.
	last, sent := map[string]string{}, map[string]bool{}
	for _, name := range f.pub.types() {
		if !sent[name] {
			require.Greater(t, name, last[name[:3]])
			last[name[:3]], sent[name] = name, true
		}
	}
}

// -1 is never: also where the broker says that it will never take the row.
func TestNoRefusalIsDeadlyWithoutALimit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var refusals atomic.Int64
	f.pub.refuse = func(event.Envelope) error {
		if refusals.Add(1) <= 4 {
			return messaging.Permanent(errors.New("never"))
		}
		return nil
	}
	cfg := quick()
	cfg.MaxRetryAttempts = -1
	f.add("k", "refused")
	f.run(f.projector(cfg))
	f.eventually("the row is taken at last, or dead", func() bool {
		n, err := f.store.Dead().Count(t.Context(), operator.DeadFilter{})
		return len(f.pub.types()) > 0 || err == nil && n > 0
	})
	require.Equal(t, []string{"refused"}, f.pub.types())
	require.EqualValues(t, 5, refusals.Load())
}
