package progress

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/projector/internal/schedule"
)

// The result of one scan serves other workers if it covers their lanes, their whole stretch, and the present shortcut.
func TestScanServesOtherWorkers(t *testing.T) {
	found := LateRows{Short: Shortcut{N: 3}, Of: map[int16]bool{1: true, 2: true}, From: 100, To: 900}
	at := func(n int16, sent, came int64) *Lane {
		l := NewLane(lanedb.Lease{Lane: n})
		l.At.Sent, l.Short = sent, schedule.Place{To: came, N: 2}
		return l
	}
	for name, c := range map[string]struct {
		lanes  []*Lane
		now    int
		serves bool
	}{
		"it was for these lanes":        {[]*Lane{at(1, 100, 900), at(2, 150, 800)}, 3, true},
		"another lane":                  {[]*Lane{at(1, 100, 900), at(3, 100, 900)}, 3, false},
		"it began later":                {[]*Lane{at(1, 99, 900)}, 3, false},
		"it ended earlier":              {[]*Lane{at(1, 100, 901)}, 3, false},
		"another transaction has ended": {[]*Lane{at(1, 100, 900)}, 4, false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.serves, found.Covers(c.lanes, Shortcut{N: c.now}))
		})
	}
	require.False(t, (&LateRows{}).Covers([]*Lane{at(1, 0, 0)}, Shortcut{}), "nothing was found yet")
}

// Fetches are used only for a dense stretch: it is short, so they walk over few index entries.
func TestStretchWithManyRowsIsDense(t *testing.T) {
	found := LateRows{From: 100, To: 132, Rows: map[int16][]int64{1: {101, 120}, 2: {110, 132}}}
	require.True(t, found.IsDense())
	found.To++
	require.False(t, found.IsDense())
}
