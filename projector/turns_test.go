package projector_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
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

// A transaction that writes stays open. Tenants take turns all the same, behind any number of rows.
func TestOpenTransactionKeepsNoTenantFromItsTurns(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var down atomic.Bool
	down.Store(true)
	f.pub.refuse = func(event.Envelope) error {
		if down.Load() {
			return messaging.ErrBrokerDown
		}
		return nil
	}
	f.open()
	cfg := quick()
	cfg.BatchSize, cfg.Workers = 16, 1
	p := f.projector(cfg)
	const backlog = 3 * lanedb.FarWindow // in one lane, so a look far ahead does not get behind them
	f.fillLanes(f.db, 1, backlog, "big", "order", "big")
	f.fillLanes(f.db, 1, 1, "small", "order", "small")
	stop := f.run(p)
	f.eventually("the lane may be searched", func() bool { return projector.SearchLimit(p) > backlog })
	down.Store(false)
	f.eventually("the small tenant has its turn", func() bool { return f.pub.of("small") == 1 })
	stop()
	require.Zero(t, projector.Mark(p))
	require.Less(t, f.pub.before("small", "big"), backlog/2, "the small tenant waited for the big one")
	f.pub.requireRising(t)
}

// Transactions that write overlap, so searches cannot go on. Rows behind more rows than a search looks at are found by a look far ahead.
func TestOverlappingTransactionsKeepNoTenantFromItsTurns(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var down atomic.Bool
	f.pub.refuse = func(event.Envelope) error {
		if down.Load() {
			return messaging.ErrBrokerDown
		}
		return nil
	}
	cfg := quick()
	cfg.BatchSize, cfg.Workers = 16, 1
	p := f.projector(cfg)
	f.open()
	stop := f.run(p)
	f.fillLanes(f.db, 1, 1, "small", "order", "small")
	f.eventually("searches go on beyond the mark", func() bool { return projector.SearchLimit(p) == 1 })
	f.open()
	down.Store(true)
	const backlog = 18 * lanedb.ScanWindow
	f.fillLanes(f.db, 1, backlog, "big", "order", "big")
	f.fillLanes(f.db, 1, 1, "small", "order", "small")
	down.Store(false)
	f.eventually("the small tenant has its turn", func() bool { return f.pub.of("small") == 2 })
	stop()
	require.LessOrEqual(t, projector.SearchLimit(p), int64(1))
	require.Less(t, f.pub.before("small", "big"), backlog/2, "the small tenant waited for the big one")
	f.pub.requireRising(t)
}

// A search has passed the place of a row that its transaction has not committed yet. The transaction commits just before the next
// statement of the search, and the key gets another row. The search does not take that one first.
func TestSearchNoticesTheEndOfATransaction(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	long := f.open()
	f.fillLanes(long, 1, 1, "small", "order", "small")
	const backlog = lanedb.ScanWindow + 400
	f.fillLanes(f.db, 1, backlog, "big", "order", "big")
	var committed atomic.Bool
	cfg := quick()
	cfg.BatchSize, cfg.Workers = 16, 1
	p := f.relay(f.pub, cfg, f.tapped(&tap{sent: func(statement string, args []any) {
		passed := strings.Contains(statement, "FILTER (WHERE x.tenant_id") && args[len(args)-5].([]int64)[0] > 1
		if passed && committed.CompareAndSwap(false, true) {
			require.NoError(t, long.Commit())
			f.fillLanes(f.db, 1, 1, "small", "order", "small")
		}
	}}, nil))
	f.run(p)
	f.eventually("all are sent", func() bool { return f.pub.total() == backlog+2 })
	require.True(t, committed.Load(), "a search has gone on behind the open transaction")
	f.pub.requireRising(t)
	require.Less(t, f.pub.before("small", "big"), backlog, "the key did not wait for the backlog")
}
