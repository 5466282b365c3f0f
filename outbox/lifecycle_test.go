package outbox_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox"
	outboxstate "github.com/oncebox/oncebox/outbox/state"
)

// fixture is a store on a schema of its own, with all lanes leased to "me" for longer than the test takes.
type fixture struct {
	*outbox.Store
	t      *testing.T
	db     *pgtest.DB
	leases map[int16]lanedb.Lease
}

func newFixture(t *testing.T, cfg *outbox.Config) *fixture {
	t.Helper()
	db := pgtest.Migrated(t, pgtest.Outbox)
	if cfg == nil {
		cfg = &outbox.Config{}
	}
	if cfg.Pooler {
		db = db.Pooled(t)
	}
	cfg.Source = "test"
	f := &fixture{Store: outbox.NewStore(db.DB, cfg), t: t, db: db}
	f.claim("me")
	return f
}

func (f *fixture) claim(owner string) {
	f.t.Helper()
	leases, err := lanedb.Of(f.Handle()).Leases.Claim(f.t.Context(), owner, 0, 64, 30*time.Minute)
	require.NoError(f.t, err)
	f.leases = map[int16]lanedb.Lease{}
	for _, l := range leases {
		f.leases[l.Lane] = l
	}
}

func (f *fixture) add(key, name string, opts ...event.AddOption) string {
	f.t.Helper()
	opts = append([]event.AddOption{event.WithAggregate("order", key, 1), event.WithType(name)}, opts...)
	id, err := pgtest.Add(f.t.Context(), f.db.DB, f, "order", []byte(name), opts...)
	require.NoError(f.t, err)
	return id
}

func (f *fixture) fetch() []outbox.Row {
	f.t.Helper()
	var cursors []lanedb.Cursor
	for _, l := range f.leases {
		cursors = append(cursors, lanedb.Cursor{Lease: l, Quota: 100})
	}
	rows, err := lanedb.Of(f.Handle()).Log.Fetch(f.t.Context(), cursors, 0)
	require.NoError(f.t, err)
	f.take(rows)
	return rows
}

// take notes that rows are taken.
func (f *fixture) take(rows []outbox.Row) {
	f.t.Helper()
	upto := map[int16]int64{}
	for i := range rows {
		upto[rows[i].Lane] = max(upto[rows[i].Lane], rows[i].Sequence)
	}
	var taken []lanedb.Taken
	for lane, seq := range upto {
		taken = append(taken, lanedb.Taken{Lease: f.leases[lane], Upto: seq})
	}
	held, _, err := lanedb.Of(f.Handle()).Log.Take(f.t.Context(), taken)
	require.NoError(f.t, err)
	require.Len(f.t, held, len(taken))
}

func (f *fixture) statuses() map[string]string {
	f.t.Helper()
	var records []outbox.Record
	require.NoError(f.t, f.db.NewSelect().Model(&records).Scan(f.t.Context()))
	out := map[string]string{}
	for _, r := range records {
		out[r.EventType] = fmt.Sprintf("%s/%d", r.Status, r.RetryCount)
	}
	return out
}

func (f *fixture) change(lane int16) int64 {
	f.t.Helper()
	blocks, err := lanedb.Of(f.Handle()).Held.Blocks(f.t.Context(), []int16{lane})
	require.NoError(f.t, err)
	return blocks[lane].Change
}

// giveUp makes a held row a dead letter.
func (f *fixture) giveUp(lease lanedb.Lease, change, seq int64, reason string) error {
	f.t.Helper()
	o := lanedb.HeldOutcome{RowID: outboxdb.RowID{Lane: lease.Lane, Seq: seq}, Verdict: lanedb.Dead, Error: reason}
	gone, held, err := lanedb.Of(f.Handle()).Held.GiveUpHeld(f.t.Context(), []lanedb.LoadedLease{{Lease: lease, Change: change}}, []lanedb.HeldOutcome{o})
	if err == nil && !held[lease.Lane] {
		require.Empty(f.t, gone)
		return lanedb.ErrFenced
	}
	return err
}

func TestRowLifeCycle(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, nil)
	require.NoError(t, f.EnsurePartitions(ctx))

	f.add("a", "a1")
	f.add("a", "a2")
	f.add("a", "a3")
	require.Equal(t, map[string]string{"a1": "NEW/0", "a2": "NEW/0", "a3": "NEW/0"}, f.statuses())

	rows := f.fetch()
	require.Len(t, rows, 3)
	require.Equal(t, "a1", rows[0].Type)
	require.Equal(t, "default|order|a", rows[0].Key)
	require.Equal(t, []byte("a1"), rows[0].Payload)
	require.Equal(t, map[string]string{"a1": "PUBLISHING/0", "a2": "PUBLISHING/0", "a3": "PUBLISHING/0"}, f.statuses())

	lane := rows[0].Lane
	lease := f.leases[lane]
	held, err := lanedb.Of(f.Handle()).Moves.Settle(ctx, []lanedb.Lease{lease}, []outboxdb.RowID{{Lane: lane, Seq: rows[0].Sequence}})
	require.NoError(t, err)
	require.True(t, held[lane])

	require.NoError(t, lanedb.Of(f.Handle()).Moves.Hold(ctx, lease, []lanedb.Outcome{
		{Seq: rows[1].Sequence, Verdict: lanedb.Refused, Error: "no\x00\xff"},
		{Seq: rows[2].Sequence, Verdict: lanedb.Follower},
	}))
	require.Equal(t, map[string]string{"a1": "SENT/0", "a2": "FAILED/1", "a3": "NEW/0"}, f.statuses())

	due, _, err := lanedb.Of(f.Handle()).Held.Due(ctx, []int16{lane}, 0)
	require.NoError(t, err)
	require.Len(t, due, 1, "a follower is not due")
	change := f.change(lane)
	require.NoError(t, lanedb.Of(f.Handle()).Held.RetryHeld(ctx, lease, change, due[0].Sequence, time.Hour, "again"))
	require.NoError(t, f.giveUp(lease, change, due[0].Sequence, "for good"))
	require.Equal(t, map[string]string{"a1": "SENT/0", "a2": "DEAD/3", "a3": "NEW/0"}, f.statuses())

	letters, err := f.Dead(ctx, operator.DeadFilter{}, nil, 10)
	require.NoError(t, err)
	require.Len(t, letters, 1)
	require.Equal(t, "for good", letters[0].Error)
	require.NoError(t, f.Replay(ctx, letters[0].ID, ann))
	require.ErrorIs(t, f.Replay(ctx, letters[0].ID, ann), operator.ErrNotDead)

	queue, err := lanedb.Of(f.Handle()).Held.Queue(ctx, lane, "default|order|a", 0)
	require.NoError(t, err)
	require.Len(t, queue, 2)
	require.Equal(t, "a2", queue[0].Type)

	_, err = lanedb.Of(f.Handle()).Held.SettleHeld(ctx, lease, change, "default|order|a", []int64{queue[0].Sequence})
	require.ErrorIs(t, err, lanedb.ErrFenced, "the replay bumped the counter")
	change = f.change(lane)
	lifted, err := lanedb.Of(f.Handle()).Held.SettleHeld(ctx, lease, change, "default|order|a", []int64{queue[0].Sequence})
	require.NoError(t, err)
	require.False(t, lifted)
	due, _, err = lanedb.Of(f.Handle()).Held.Due(ctx, []int16{lane}, 0)
	require.NoError(t, err)
	require.Len(t, due, 1, "the follower became due")
	lifted, err = lanedb.Of(f.Handle()).Held.SettleHeld(ctx, lease, change, "default|order|a", []int64{due[0].Sequence})
	require.NoError(t, err)
	require.True(t, lifted)
	require.Equal(t, map[string]string{"a1": "SENT/0", "a2": "SENT/0", "a3": "SENT/0"}, f.statuses())

	stats, err := f.State().Stats(ctx)
	require.NoError(t, err)
	stats.SnapshotAge, stats.Sent = 0, 0 // the server counts what was published a second late
	require.Equal(t, outboxstate.Stats{Lanes: 64}, stats)
	mark, err := lanedb.Of(f.Handle()).Log.ReadWatermark(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 3, mark.Seq)
	_, err = lanedb.Of(f.Handle()).Leases.Renew(ctx, []lanedb.Lease{lease}, time.Minute)
	require.NoError(t, err)
	all, err := lanedb.Of(f.Handle()).Leases.Heartbeat(ctx, "me", 0, time.Minute)
	require.NoError(t, err)
	require.Equal(t, lanedb.Membership{Alive: 1, Lanes: 64}, all)
	require.NoError(t, lanedb.Of(f.Handle()).Leases.Unregister(ctx, "me"))
	require.NoError(t, lanedb.Of(f.Handle()).Leases.Release(ctx, []lanedb.Lease{lease}))
	require.NoError(t, f.Clean(ctx))
}

func TestDiscardLetsTheKeyGo(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, nil)
	id := f.add("a", "a1")
	f.add("a", "a2")
	rows := f.fetch()
	lease := f.leases[rows[0].Lane]
	require.NoError(t, lanedb.Of(f.Handle()).Moves.Hold(ctx, lease, []lanedb.Outcome{
		{Seq: rows[0].Sequence, Verdict: lanedb.Dead, Error: "bad"},
		{Seq: rows[1].Sequence, Verdict: lanedb.Follower},
	}))
	require.NoError(t, f.Discard(ctx, id, ann))
	due, _, err := lanedb.Of(f.Handle()).Held.Due(ctx, []int16{lease.Lane}, 0)
	require.NoError(t, err)
	require.Len(t, due, 1)
	lifted, err := lanedb.Of(f.Handle()).Held.SettleHeld(ctx, lease, f.change(lease.Lane), due[0].Key, []int64{due[0].Sequence})
	require.NoError(t, err)
	require.True(t, lifted)
}
