package lanedb_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/outbox/state"
)

// A server that has crashed may have forgotten numbers, and may have given them to other rows. What rests on a position of before reads
// nothing there and writes nothing.
func TestPositionsOfAnotherServerAreVoid(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.Record("a", "a1")
	var lane int16
	require.NoError(t, f.DB.NewRaw("SELECT lane FROM outbox").Scan(t.Context(), &lane))
	position := func() (lanedb.Position, string) {
		at, on, err := lanedb.Of(f.Handle()).Log.Positions(t.Context(), []int16{lane})
		require.NoError(t, err)
		return at[lane], on
	}
	_, err := lanedb.Of(f.Handle()).Log.ReadWatermark(t.Context()) // names the incarnation
	require.NoError(t, err)
	at, on := position()
	require.NotEmpty(t, on)
	lease := f.Leases[lane]
	lease.Incarnation = on
	fetch := func() []state.Row {
		rows, err := lanedb.Of(f.Handle()).Log.Fetch(t.Context(), []lanedb.Cursor{{Lease: lease, Position: at, Quota: 10}}, 0)
		require.NoError(t, err)
		return rows
	}
	rows := fetch()
	require.Len(t, rows, 1)
	id := outboxdb.RowID{Lane: lane, Seq: rows[0].Sequence}

	f.Exec("DELETE FROM outbox_incarnation") // as a crash does
	require.Empty(t, fetch())
	held, _, err := lanedb.Of(f.Handle()).Log.Take(t.Context(), []lanedb.Taken{{Lease: lease, Upto: id.Seq}})
	require.NoError(t, err)
	require.Empty(t, held, "take")
	held, err = lanedb.Of(f.Handle()).Log.Record(t.Context(), []lanedb.Placed{{Lease: lease, Position: at.Publish([]int64{id.Seq})}})
	require.NoError(t, err)
	require.Empty(t, held, "record")
	held, err = lanedb.Of(f.Handle()).Moves.Settle(t.Context(), []lanedb.Lease{lease}, []outboxdb.RowID{id})
	require.NoError(t, err)
	require.Empty(t, held, "settle")
	require.ErrorIs(t, lanedb.Of(f.Handle()).Moves.Hold(t.Context(), lease, []lanedb.Outcome{{Seq: id.Seq, Verdict: lanedb.Dead}}), lanedb.ErrFenced)
	_, held, err = lanedb.Of(f.Handle()).Moves.Delay(t.Context(), []lanedb.Lease{lease}, []outboxdb.RowID{id})
	require.NoError(t, err)
	require.Empty(t, held, "delay")
	require.ErrorIs(t, lanedb.Of(f.Handle()).Moves.CountAttempt(t.Context(), []lanedb.Lease{lease}, []outboxdb.RowID{id}, false), lanedb.ErrFenced)
	require.Equal(t, 1, f.Count("outbox WHERE crashes = 0"))
	after, _ := position()
	require.Equal(t, at, after)
	require.Equal(t, "NEW/0", f.Statuses()["a1"])
}

// A standby that takes over may have lost a held row, and its number is that of another one by then.
func TestHeldRowsOfAnotherServerAreLeftAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.Record("a", "a1")
	row := f.Fetch()[0]
	on, err := lanedb.Of(f.Handle()).Log.ReadWatermark(t.Context())
	require.NoError(t, err)
	lease := f.Leases[row.Lane]
	lease.Incarnation = on.Incarnation
	require.NoError(t, lanedb.Of(f.Handle()).Moves.Hold(t.Context(), lease, []lanedb.Outcome{{Seq: row.Sequence, Verdict: lanedb.Refused, Error: "no"}}))
	change := f.Change(row.Lane)
	loaded := []lanedb.LoadedLease{{Lease: lease, Change: change}}
	id := outboxdb.RowID{Lane: row.Lane, Seq: row.Sequence}

	f.Exec("DELETE FROM outbox_incarnation")
	_, err = lanedb.Of(f.Handle()).Held.SettleHeld(t.Context(), lease, change, row.Key, []int64{id.Seq})
	require.ErrorIs(t, err, lanedb.ErrFenced)
	again := lanedb.Outcome{Seq: id.Seq, Wait: time.Minute, Error: "again"}
	require.ErrorIs(t, lanedb.Of(f.Handle()).Held.RetryHeld(t.Context(), lease, change, again), lanedb.ErrFenced)
	require.ErrorIs(t, lanedb.Of(f.Handle()).Moves.CountAttempt(t.Context(), []lanedb.Lease{lease}, []outboxdb.RowID{id}, true), lanedb.ErrFenced)
	gone, held, err := lanedb.Of(f.Handle()).Held.GiveUpHeld(t.Context(), loaded, []lanedb.HeldOutcome{{RowID: id, Verdict: lanedb.Dead}})
	require.NoError(t, err)
	require.Empty(t, gone)
	require.Empty(t, held)
	_, held, err = lanedb.Of(f.Handle()).Held.ReleaseKeys(t.Context(), loaded, []lanedb.LaneKey{{Lane: row.Lane, Key: row.Key}})
	require.NoError(t, err)
	require.Empty(t, held)
	require.Equal(t, "FAILED/1", f.Statuses()["a1"])
	require.Equal(t, 1, f.Count("outbox_held WHERE crashes = 0 AND error_message = 'no'"))
}

// The row is there after each of them, with the id that it had.
func TestIncarnationIsAnotherOneThoughItsRowIsThere(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, nil)
	db := server.Migrated(t)
	db.SetMaxIdleConns(0)
	relay := lanedb.Of(outbox.NewStore(db.DB, nil).Handle())
	id := func() (id string) {
		require.NoError(t, db.NewRaw("SELECT id FROM outbox_incarnation").Scan(t.Context(), &id))
		return id
	}
	now := func() string {
		m, err := relay.Log.ReadWatermark(t.Context())
		require.NoError(t, err)
		return m.Incarnation
	}
	before, row := now(), id()
	require.Equal(t, before, now())
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"restored", func() {
			_, err := db.ExecContext(t.Context(), "DELETE FROM outbox_incarnation")
			require.NoError(t, err)
			_, err = db.NewRaw("INSERT INTO outbox_incarnation (id) VALUES (?)", row).Exec(t.Context())
			require.NoError(t, err)
		}},
		{"written anew", func() {
			_, err := db.ExecContext(t.Context(), "VACUUM FULL outbox_incarnation")
			require.NoError(t, err)
		}},
		{"started anew", func() {
			require.NoError(t, server.End(os.Interrupt)) // cleanly
			require.NoError(t, server.Restart(t.Context()))
		}},
	} {
		step.do()
		require.Equal(t, row, id(), step.name)
		require.NotEqual(t, before, now(), step.name)
		before = now()
	}
}
