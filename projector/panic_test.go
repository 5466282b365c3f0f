package projector_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/outbox/state"
)

// Wherever a step of a loop panics, that loop and all the others go on.
func TestPanicEndsNoLoop(t *testing.T) {
	t.Parallel()
	for name, statement := range map[string]string{ // what only this statement contains
		"publish":     "",
		"heartbeat":   "INSERT INTO outbox_projector",
		"claim":       "lease_until < clock_timestamp()\n\tORDER BY",
		"renew":       "RETURNING l.lane, l.change",
		"load blocks": "coalesce(b.state, '')",
		"fetch":       "ORDER BY x.seq LIMIT c.quota",
		"settle":      "outbox_progress (lane",
		"hold":        "f.verdict <> 5)\n\t\tTHEN",
		"due":         "h.lane = c.held_lane AND h.retry_after <=",
		"settle held": "FROM gone WHERE $7",
		"clean":       "to_date(right(c.relname",
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			var panicked, refused atomic.Bool
			f.pub.refuse = func(e event.Envelope) error {
				if statement == "" && panicked.CompareAndSwap(false, true) {
					panic("of the test")
				}
				if e.Type == "a1" && refused.CompareAndSwap(false, true) {
					return errors.New("not now")
				}
				return nil
			}
			store := f.through(func(text string, _ bool) {
				if statement != "" && strings.Contains(text, statement) && panicked.CompareAndSwap(false, true) {
					panic("of the test")
				}
			}, nil)
			f.add("a", "a1")
			f.add("a", "a2")
			f.add("b", "b1")
			cfg := quick()
			cfg.MaxRetryAttempts, cfg.Renew, cfg.CleanInterval = -1, 50*time.Millisecond, 50*time.Millisecond
			p := f.relay(f.pub, cfg, store)
			f.run(p)
			f.eventually("it panicked", panicked.Load)
			f.eventually("all are sent", func() bool {
				s := f.statuses()
				return s["a1"] == state.StatusSent && s["a2"] == state.StatusSent && s["b1"] == state.StatusSent
			})
			f.add("c", "c1")
			f.eventually("and what comes later", func() bool { return f.statuses()["c1"] == state.StatusSent })
			f.pub.requireOrder(t, f.ids())
		})
	}
}

func (f *fixture) ids() []string {
	f.t.Helper()
	var ids []string
	require.NoError(f.t, f.db.NewRaw("SELECT id FROM outbox_messages").Scan(f.t.Context(), &ids))
	return ids
}
