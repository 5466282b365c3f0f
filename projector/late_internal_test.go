package projector

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/lanedb"
)

// What one scan has found serves other workers if it was for their lanes, for all that they have to do, and on the shortcut of now.
func TestScanServesOtherWorkers(t *testing.T) {
	found := lateRows{short: shortcut{n: 3}, of: map[int16]bool{1: true, 2: true}, from: 100, to: 900}
	at := func(n int16, sent, came int64) *lane {
		l := newLane(lanedb.Lease{Lane: n})
		l.at.Sent, l.short = sent, passed{to: came, n: 2}
		return l
	}
	for name, c := range map[string]struct {
		lanes  []*lane
		now    int
		serves bool
	}{
		"it was for these lanes":        {[]*lane{at(1, 100, 900), at(2, 150, 800)}, 3, true},
		"another lane":                  {[]*lane{at(1, 100, 900), at(3, 100, 900)}, 3, false},
		"it began later":                {[]*lane{at(1, 99, 900)}, 3, false},
		"it ended earlier":              {[]*lane{at(1, 100, 901)}, 3, false},
		"another transaction has ended": {[]*lane{at(1, 100, 900)}, 4, false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.serves, found.covers(c.lanes, shortcut{n: c.now}))
		})
	}
	require.False(t, (&lateRows{}).covers([]*lane{at(1, 0, 0)}, shortcut{}), "nothing was found yet")
}
