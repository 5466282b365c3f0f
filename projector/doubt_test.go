package projector_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
)

// neighbours returns keys that share a lane.
func (f *fixture) neighbours() (keys []string) {
	f.t.Helper()
	for i := range 65 {
		key := fmt.Sprintf("k%02d", i)
		f.add(key, key)
	}
	require.NoError(f.t, f.db.NewRaw(`SELECT event_type FROM outbox WHERE lane = (
		SELECT lane FROM outbox GROUP BY lane HAVING count(*) > 1 LIMIT 1) ORDER BY seq`).Scan(f.t.Context(), &keys))
	_, err := f.db.Exec("DELETE FROM outbox")
	require.NoError(f.t, err)
	return keys
}

// refused has the heads of the keys refused, and held for long.
func (f *fixture) refused(keys ...string) {
	f.t.Helper()
	for _, key := range keys {
		f.add(key, key+"-1")
	}
	f.pub.refuse = func(event.Envelope) error { return errNotNow }
	cfg := sleepy()
	cfg.Retry.Delay, cfg.Retry.MaxDelay = time.Hour, time.Hour
	require.NoError(f.t, f.projector(cfg).RunOnce(f.t.Context()))
	f.pub.refuse = nil
}

// Rows that were made due by hand although their keys wait for an operator stay where they are, and keep no
// worker busy.
func TestDueRowsUnderADeadBlockAreLeftAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.refused(f.neighbours()[:2]...)
	_, err := f.db.Exec("UPDATE outbox_block SET state = 'dead'; UPDATE outbox_held SET retry_after = now()")
	require.NoError(t, err)
	var loads, looks atomic.Int32
	store := f.through(func(statement string, _ bool) {
		switch {
		case strings.Contains(statement, "coalesce(b.state, '')"):
			loads.Add(1)
		case strings.Contains(statement, "h.retry_after <= (SELECT clock_timestamp())"):
			looks.Add(1)
		}
	}, nil)
	cfg := patient()
	cfg.Workers, cfg.CleanInterval = 1, -1
	began := time.Now()
	f.run(f.relay(f.pub, cfg, store))
	f.add("later", "later", event.WithNotBefore(time.Now().Add(time.Second)))
	f.eventually("what comes later is published", f.published("later"))
	require.Equal(t, []string{"later"}, f.pub.types())
	require.LessOrEqual(t, loads.Load(), int32(8), "of the blocks")
	require.LessOrEqual(t, looks.Load(), 30+int32(time.Since(began)/time.Second), "at what is due, without the regular looks; else there are hundreds a second")
}

// An operator changes the blocks of a lane while a worker reads them. The worker must not rely on what it
// has read before the change: it could take a blocked key for a free one and publish an event of it too early.
func TestBlocksThatChangeWhileTheyAreRead(t *testing.T) {
	t.Parallel()
	for name, swap := range map[string]bool{"one": false, "the other": true} { // they are read in any order
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			keys := f.neighbours()
			stalled, blocked := keys[0], keys[1]
			if swap {
				stalled, blocked = blocked, stalled
			}
			f.refused(keys[:2]...)
			_, err := f.db.Exec("DELETE FROM outbox_held WHERE event_type = ?", stalled+"-1")
			require.NoError(t, err)
			f.add(blocked, blocked+"-2")
			var changed atomic.Bool
			store := f.tapped(&tap{ended: func(statement string) {
				if strings.Contains(statement, "coalesce(b.state, '')") && changed.CompareAndSwap(false, true) {
					if err := f.changeLanes("change = change + 1"); err != nil {
						t.Error(err)
					}
				}
			}}, nil)
			cfg := quick()
			cfg.Workers, cfg.CleanInterval = 1, -1
			p := f.relay(f.pub, cfg, store)
			f.run(p)
			f.eventually("it waits behind its head", func() bool {
				var n int
				err := f.db.QueryRow("SELECT count(*) FROM outbox_held").Scan(&n)
				return err == nil && n == 2 || f.pub.total() > 0
			})
			require.Empty(t, f.pub.types())
		})
	}
}
