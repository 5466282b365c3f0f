package progress

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// A row that stays in the log takes the time of its publication from a later one of its lane, if there is one. So it stays only when that was
// a moment ago.
func TestRowStaysIfItsTimeIsThatOfALaterOne(t *testing.T) {
	for name, c := range map[string]struct {
		seq     int64
		reached time.Time
		stays   bool
	}{
		"it is the latest":                       {11, time.Now().Add(-time.Hour), true},
		"a later one has just left":              {9, time.Now(), true},
		"a later one left long ago":              {9, time.Now().Add(-2 * maxLate), false},
		"nobody knows when the later one left":   {9, time.Time{}, false},
		"it is the latest of a lane that is new": {11, time.Time{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := NewLane(lanedb.Lease{Lane: 1})
			l.Located, l.At, l.reached = true, lanedb.Position{Upto: 10, Sent: 5}, c.reached
			b := NewBatch(map[int16]*Lane{1: l}, nil)
			b.InTurn[1] = true
			row := &outboxdb.Row{Lane: 1}
			row.Sequence, row.CreatedAt = c.seq, time.Now()
			b.Published = []*outboxdb.Row{row}
			o := b.Out(true)
			require.Equal(t, c.stays, len(o.logged[1]) == 1)
			require.Equal(t, !c.stays, len(o.Moved) == 1)
		})
	}
}

func TestLaneKnowsWhenItsLatestRowLeft(t *testing.T) {
	l := NewLane(lanedb.Lease{Lane: 1})
	l.MoveTo(lanedb.Position{Upto: 10})
	first := l.reached
	require.False(t, first.IsZero())
	l.MoveTo(lanedb.Position{Upto: 10, Sent: 9})
	require.Equal(t, first, l.reached, "the latest row is that of before")
	l.MoveTo(lanedb.Position{Upto: 11})
	require.True(t, l.reached.After(first))
	l.StartAt(lanedb.Position{Upto: 12}, "")
	require.True(t, l.reached.IsZero(), "another owner may have published it")
}
