package outbox_test

import (
	"testing"

	"github.com/stretchr/testify/require"

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
	after, _ := position()
	require.Equal(t, at, after)
	require.Equal(t, "NEW/0", f.statuses()["a1"])
}
