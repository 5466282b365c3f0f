package projector_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/projector"
)

// open begins a transaction that writes, and holds the mark until it ends.
func (f *fixture) open() bun.Tx {
	f.t.Helper()
	tx, err := f.db.BeginTx(f.t.Context(), nil)
	require.NoError(f.t, err)
	f.t.Cleanup(func() { _ = tx.Rollback() }) // before the schema is dropped
	_, err = tx.Exec("SELECT pg_current_xact_id()")
	require.NoError(f.t, err)
	return tx
}

// outage makes the broker fail until it is lifted.
func (f *fixture) outage() (lift func()) {
	f.pub.refuseWith(func(event.Envelope) error { return messaging.ErrBrokerDown })
	return func() { f.pub.refuseWith(nil) }
}

// inTurns is for tests of turns within one lane. A pass publishes few rows. Passes look at all lanes seldom: then the
// few rows would be shared out among all of them.
func inTurns() projector.Config {
	cfg := quick()
	cfg.BatchSize, cfg.Workers = 16, 1
	cfg.SleepBusy, cfg.SleepIdle = 100*time.Millisecond, 100*time.Millisecond
	return cfg
}

// A transaction that writes stays open. Tenants take turns all the same, behind any number of rows.
func TestOpenTransactionKeepsNoTenantFromItsTurns(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	lift := f.outage()
	f.open()
	p := f.projector(inTurns())
	const backlog = 3 * lanedb.FarWindow // so a look far ahead does not get behind them
	f.fillLanes(f.db, 1, backlog, "big", "order", "big")
	f.fillLanes(f.db, 1, 1, "small", "order", "small")
	f.run(p)
	f.eventually("the lane may be searched", func() bool { return projector.SearchLimit(p) > backlog })
	lift()
	f.eventually("the small tenant has its turn", func() bool { return f.pub.of("small") == 1 })
	require.Zero(t, projector.Mark(p), "the transaction holds the mark")
	require.Less(t, f.pub.before("small", "big"), backlog/2, "the small tenant waited for the big one")
	f.pub.requireRising(t)
}

// Transactions that write overlap, so searches cannot go on. Rows behind more rows than a search looks at are found by a look far
// ahead.
func TestOverlappingTransactionsKeepNoTenantFromItsTurns(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := f.projector(inTurns())
	f.open()
	f.run(p)
	f.fillLanes(f.db, 1, 1, "small", "order", "small")
	f.eventually("searches go on beyond the mark", func() bool { return projector.SearchLimit(p) == 1 })
	f.open()
	lift := f.outage()
	const backlog = 18 * lanedb.ScanWindow
	f.fillLanes(f.db, 1, backlog, "big", "order", "big")
	f.fillLanes(f.db, 1, 1, "small", "order", "small")
	lift()
	f.eventually("the small tenant has its turn", func() bool { return f.pub.of("small") == 2 })
	require.LessOrEqual(t, projector.SearchLimit(p), int64(1), "the second transaction holds the end of the shortcut")
	require.Less(t, f.pub.before("small", "big"), backlog/2, "the small tenant waited for the big one")
	f.pub.requireRising(t)
}

// A search has passed the number of a row that its transaction has not committed yet. The transaction commits just before the next
// statement of the search, and the key gets another row. The search does not take that one first.
func TestSearchNoticesTheEndOfATransaction(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	lift := f.outage()
	long := f.open()
	f.fillLanes(long, 1, 1, "small", "order", "small")
	const backlog = lanedb.ScanWindow + 400
	f.fillLanes(f.db, 1, backlog, "big", "order", "big")
	var once atomic.Bool
	passed, committed := make(chan struct{}), make(chan struct{})
	p := f.relay(f.pub, inTurns(), f.tapped(&tap{sent: func(statement string, args []any) {
		behind := strings.Contains(statement, "FILTER (WHERE x.tenant_id") && args[len(args)-5].([]int64)[0] > 1
		if behind && once.CompareAndSwap(false, true) {
			close(passed)
			<-committed
		}
	}}, nil))
	f.run(p)
	f.eventually("the lane may be searched", func() bool { return projector.SearchLimit(p) > backlog })
	goOn := sync.OnceFunc(func() { close(committed) })
	t.Cleanup(goOn) // before the projector is stopped
	lift()
	await.Receive(t, passed, "the search has passed the number")
	require.NoError(t, long.Commit())
	f.fillLanes(f.db, 1, 1, "small", "order", "small")
	goOn()
	f.eventually("all are sent", func() bool { return f.pub.total() == backlog+2 })
	f.pub.requireRising(t)
	require.Less(t, f.pub.before("small", "big"), backlog, "the key did not wait for the backlog")
}

// A topic has healed while a transaction is open. Its first row, behind more rows of another topic in trouble than a search looks
// at, is probed.
func TestTopicHealsBesideAnOpenTransaction(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var healed, known atomic.Bool
	f.pub.refuse = func(e event.Envelope) error {
		if e.Topic == "down" || !healed.Load() {
			known.Store(known.Load() || e.Topic == "healed")
			return &messaging.TopicError{Topic: e.Topic, Err: messaging.ErrBrokerDown}
		}
		return nil
	}
	f.open()
	f.fillLanes(f.db, 1, 2*lanedb.ScanWindow, "big", "down", "big")
	f.fillLanes(f.db, 1, 1, "small", "healed", "small")
	p := f.projector(quick())
	f.run(p)
	f.eventually("the topic is in trouble", func() bool { return known.Load() && projector.SearchLimit(p) > 2*lanedb.ScanWindow })
	healed.Store(true)
	f.eventually("the row is sent", func() bool { return f.pub.of("small") == 1 })
	require.Zero(t, projector.Mark(p), "the transaction holds the mark")
}
