package progress

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/lanedb"
)

func TestMarkCounts(t *testing.T) {
	mark := func(seq, xid, xmin int64, timeline, incarnation string) lanedb.Watermark {
		return lanedb.Watermark{Seq: seq, XID: xid, Xmin: xmin, Timeline: timeline, Incarnation: incarnation}
	}
	first := mark(100, 7, 7, "1", "a")
	for name, c := range map[string]struct {
		then   lanedb.Watermark
		valid  int64
		resets int
	}{
		"a transaction may still commit a lower number": {mark(120, 9, 7, "1", "a"), 0, 0},
		"none":                   {mark(120, 9, 9, "1", "a"), 100, 0},
		"numbers were forgotten": {mark(99, 9, 9, "1", "a"), 0, 1},
		"a standby took over":    {mark(120, 9, 9, "2", "a"), 0, 1},
		"the server crashed":     {mark(120, 9, 9, "1", "b"), 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var m Watermark
			m.Take(m.Begin(), first)
			require.Zero(t, m.Current())
			m.Take(m.Begin(), c.then)
			require.Equal(t, c.valid, m.Current())
			resets, _ := m.Generation()
			require.Equal(t, c.resets, resets)
		})
	}
}

// Rows are taken by several workers at a time, and look at the sequence while they are.
func TestMarkOfATake(t *testing.T) {
	taken := func(seq, xid, xmin int64) lanedb.Watermark { return lanedb.Watermark{Seq: seq, XID: xid, Xmin: xmin} }
	var m Watermark
	m.Take(m.Begin(), lanedb.Watermark{Seq: 100, XID: 7, Xmin: 7})
	one := m.Begin()
	other := m.Begin()
	m.Took(one, taken(150, 10, 8)) // 100 counts: the transactions up to 7 have ended
	require.EqualValues(t, 100, m.Current())
	// Perhaps 150 was read after transaction 11 had begun, so transaction 12 may have drawn a number up to it.
	m.Took(other, taken(160, 11, 8))
	m.Took(m.Begin(), taken(170, 20, 12))
	require.EqualValues(t, 100, m.Current())
	m.Took(m.Begin(), taken(180, 30, 21))
	require.EqualValues(t, 160, m.Current())

	stale := m.Begin()
	m.Doubt()
	m.Took(stale, taken(500, 31, 31))
	require.EqualValues(t, 160, m.Current(), "it was sent before a look failed")
	require.Empty(t, m.pending)
}

// While a transaction stays open for long, the looks that wait are bounded.
func TestMarksThatWaitAreBounded(t *testing.T) {
	var m Watermark
	for i := range int64(10_000) {
		m.Take(m.Begin(), lanedb.Watermark{Seq: 100 * i, XID: 10 * i, Xmin: 5})
		require.LessOrEqual(t, len(m.pending), maxPending)
	}
	m.Take(m.Begin(), lanedb.Watermark{Seq: 2_000_000, XID: 100_000, Xmin: 99_991})
	require.EqualValues(t, 999_900, m.Current(), "the latest of them counts")
}

// Between a look and the next look that was answered, the server may have become another one.
func TestMarkBeforeALookThatFailedDoesNotCount(t *testing.T) {
	var m Watermark
	look := func(seq, xid int64) {
		m.Take(m.Begin(), lanedb.Watermark{Seq: seq, XID: xid, Xmin: xid, Timeline: "1", Incarnation: "a"})
	}
	look(100, 7)
	m.Doubt()
	look(120, 9)
	require.Zero(t, m.Current())
	look(130, 11)
	require.EqualValues(t, 120, m.Current())
	m.Doubt()
	look(99, 13)
	resets, _ := m.Generation()
	require.Equal(t, 1, resets, "what was seen before the failure is still compared")
}
