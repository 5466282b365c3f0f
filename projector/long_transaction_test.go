package projector_test

import (
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/outbox/state"
)

// While a transaction stays open, rows of other transactions leave, and fetches begin behind them. The rows
// of the open transaction leave when it commits, in its order and in front of later rows of their keys,
// also if one of them has to be tried again.
func TestLongTransactionHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]error{
		"nothing is refused": nil, "a row is left": messaging.ErrBehind, "a row is held": errors.New("too large today"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			var short, late atomic.Bool
			cfg := quick()
			cfg.Renew = 20 * time.Millisecond
			cfg.BatchSize = 2
			p := f.relay(f.pub, cfg, f.tapped(&tap{sent: func(statement string, args []any) {
				if strings.Contains(statement, "LIMIT c.quota") && args[6] != "{}" {
					short.Store(true)
				}
				if strings.Contains(statement, "LIMIT 50001") {
					late.Store(true)
				}
			}}, nil))
			f.add("b", "b0") // the first event of a tenant makes the tenant's other events wait
			long := f.open()
			const slow = 7
			for i := range int64(slow) {
				_, err := f.store.Add(t.Context(), long, "order", []byte("slow"), event.WithAggregate("order", "a", i+1),
					event.WithType("slow"+strconv.FormatInt(i, 10)))
				require.NoError(t, err)
			}
			_, err := f.db.Exec("SELECT setval('outbox_seq', 10000)") // few rows in a long stretch are not left to the fetches
			require.NoError(t, err)
			f.run(p)
			added := 1
			f.eventually("fetches take a shortcut", func() bool {
				added++
				f.add("b", "b"+strconv.Itoa(added))
				return short.Load()
			})
			f.eventually("what others commit leaves", func() bool { return f.pub.total() == added })
			ofB := "outbox_lane l JOIN outbox o USING (lane) WHERE o.event_type = 'b0' AND l.open_to > o.seq"
			f.eventually("the statistics begin behind it", func() bool { return f.rows(ofB) == 1 })
			late.Store(false)
			f.pub.refuseWith(func(e event.Envelope) error {
				if e.Type != "slow2" || refusal == nil {
					return nil
				}
				f.pub.refuse = nil
				return refusal
			})
			require.NoError(t, long.Commit())
			f.add("a", "next")
			f.eventually("what it commits leaves", func() bool { return f.statuses()["next"] == state.StatusSent })
			f.pub.requireOrder(t, f.ids())
			require.Equal(t, added+slow+1, f.pub.total())
			require.True(t, late.Load(), "what it has left behind is looked for on its own")
			f.eventually("the statistics begin at the position again", func() bool { return f.rows(ofB) == 0 })
		})
	}
}

// One transaction brings many rows of a tenant while others commit. The rows of another tenant, of the same transaction, do not wait for all of them.
func TestBulkOfALongTransactionDelaysNoOtherTenant(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var late atomic.Bool
	cfg := quick()
	cfg.Renew = 20 * time.Millisecond
	cfg.BatchSize = 64
	p := f.relay(f.pub, cfg, f.tapped(&tap{sent: func(statement string, _ []any) {
		if strings.Contains(statement, "LIMIT 50001") {
			late.Store(true)
		}
	}}, nil))
	long := f.open()
	const backlog = 64 * 100
	f.fillIn(long, backlog, "big", "order", "big")
	f.fillIn(long, 64, "small", "order", "small")
	f.run(p)
	f.eventually("all lanes have taken a shortcut past these rows", func() bool {
		f.fill(64, "steady", "order", "steady")
		return f.rows("outbox_lane WHERE open_to > "+strconv.Itoa(backlog+64)) == 64
	})
	require.NoError(t, long.Commit())
	f.eventually("all are sent", func() bool { return f.pub.of("big", "small") == backlog+64 })
	require.True(t, late.Load(), "a scan has run")
	require.Less(t, f.pub.before("small", "big"), backlog/2, "the small tenant waited for the big one: %v", f.pub.turns())
	f.pub.requireRising(t)
}
