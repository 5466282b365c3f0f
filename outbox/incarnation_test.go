package outbox_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/outbox"
)

// A server that has crashed may have forgotten numbers, and may have given them to other rows. What rests on a position of before reads
// nothing there and writes nothing.
func TestPositionsOfAnotherServerAreVoid(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.add("a", "a1")
	var lane int16
	require.NoError(t, f.db.NewRaw("SELECT lane FROM outbox").Scan(t.Context(), &lane))
	position := func() (outbox.Position, string) {
		at, on, err := f.Relay().Positions(t.Context(), []int16{lane})
		require.NoError(t, err)
		return at[lane], on
	}
	_, err := f.Relay().ReadWatermark(t.Context()) // names the incarnation
	require.NoError(t, err)
	at, on := position()
	require.NotEmpty(t, on)
	lease := f.leases[lane]
	lease.Incarnation = on
	fetch := func() []outbox.Row {
		rows, err := f.Relay().Fetch(t.Context(), []outbox.Cursor{{Lease: lease, Position: at, Quota: 10}}, 0)
		require.NoError(t, err)
		return rows
	}
	rows := fetch()
	require.Len(t, rows, 1)
	id := outbox.RowID{Lane: lane, Seq: rows[0].Sequence}

	f.exec("DELETE FROM outbox_incarnation") // as a crash does
	require.Empty(t, fetch())
	held, _, err := f.Relay().Take(t.Context(), []outbox.Taken{{Lease: lease, Upto: id.Seq}})
	require.NoError(t, err)
	require.Empty(t, held, "take")
	held, err = f.Relay().Record(t.Context(), []outbox.Placed{{Lease: lease, Position: at.Publish([]int64{id.Seq})}})
	require.NoError(t, err)
	require.Empty(t, held, "record")
	held, err = f.Relay().Settle(t.Context(), []outbox.Lease{lease}, []outbox.RowID{id})
	require.NoError(t, err)
	require.Empty(t, held, "settle")
	require.ErrorIs(t, f.Relay().Hold(t.Context(), lease, []outbox.Outcome{{Seq: id.Seq, Verdict: outbox.Dead}}), outbox.ErrFenced)
	_, held, err = f.Relay().Delay(t.Context(), []outbox.Lease{lease}, []outbox.RowID{id})
	require.NoError(t, err)
	require.Empty(t, held, "delay")
	require.ErrorIs(t, f.Relay().CountAttempt(t.Context(), []outbox.Lease{lease}, []outbox.RowID{id}, false), outbox.ErrFenced)
	require.Equal(t, 1, f.count("outbox WHERE crashes = 0"))
	after, _ := position()
	require.Equal(t, at, after)
	require.Equal(t, "NEW/0", f.statuses()["a1"])
}

// A standby that takes over may have lost a held row, and its number is that of another one by then.
func TestHeldRowsOfAnotherServerAreLeftAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.add("a", "a1")
	row := f.fetch()[0]
	on, err := f.Relay().ReadWatermark(t.Context())
	require.NoError(t, err)
	lease := f.leases[row.Lane]
	lease.Incarnation = on.Incarnation
	require.NoError(t, f.Relay().Hold(t.Context(), lease, []outbox.Outcome{{Seq: row.Sequence, Verdict: outbox.Refused, Error: "no"}}))
	change := f.change(row.Lane)
	loaded := []outbox.LoadedLease{{Lease: lease, Change: change}}
	id := outbox.RowID{Lane: row.Lane, Seq: row.Sequence}

	f.exec("DELETE FROM outbox_incarnation")
	_, err = f.Relay().SettleHeld(t.Context(), lease, change, row.Key, []int64{id.Seq})
	require.ErrorIs(t, err, outbox.ErrFenced)
	require.ErrorIs(t, f.Relay().RetryHeld(t.Context(), lease, change, id.Seq, time.Minute, "again"), outbox.ErrFenced)
	require.ErrorIs(t, f.Relay().CountAttempt(t.Context(), []outbox.Lease{lease}, []outbox.RowID{id}, true), outbox.ErrFenced)
	gone, held, err := f.Relay().GiveUpHeld(t.Context(), loaded, []outbox.HeldOutcome{{RowID: id, Verdict: outbox.Dead}})
	require.NoError(t, err)
	require.Empty(t, gone)
	require.Empty(t, held)
	_, held, err = f.Relay().ReleaseKeys(t.Context(), loaded, []outbox.LaneKey{{Lane: row.Lane, Key: row.Key}})
	require.NoError(t, err)
	require.Empty(t, held)
	require.Equal(t, "FAILED/1", f.statuses()["a1"])
	require.Equal(t, 1, f.count("outbox_held WHERE crashes = 0 AND error_message = 'no'"))
}

// The row is there after each of them, with the id that it had.
func TestIncarnationIsAnotherOneThoughItsRowIsThere(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, nil)
	db := server.Migrated(t)
	db.SetMaxIdleConns(0)
	relay := outbox.NewStore(db.DB, nil).Relay()
	id := func() (id string) {
		require.NoError(t, db.NewRaw("SELECT id FROM outbox_incarnation").Scan(t.Context(), &id))
		return id
	}
	now := func() string {
		m, err := relay.ReadWatermark(t.Context())
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
