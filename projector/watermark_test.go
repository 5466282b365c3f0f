package projector

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
			var m watermark
			m.take(m.begin(), first)
			require.Zero(t, m.current())
			m.take(m.begin(), c.then)
			require.Equal(t, c.valid, m.current())
			resets, _ := m.generation()
			require.Equal(t, c.resets, resets)
		})
	}
}

// Rows are taken by several workers at a time, and look at the sequence while they are.
func TestMarkOfATake(t *testing.T) {
	taken := func(seq, xid, xmin int64) lanedb.Watermark { return lanedb.Watermark{Seq: seq, XID: xid, Xmin: xmin} }
	var m watermark
	m.take(m.begin(), lanedb.Watermark{Seq: 100, XID: 7, Xmin: 7})
	one := m.begin()
	other := m.begin()
	m.took(one, taken(150, 10, 8)) // 100 counts: the transactions up to 7 have ended
	require.EqualValues(t, 100, m.current())
	// 150 was read after 11 was assigned, perhaps: a transaction 12 may have drawn it.
	m.took(other, taken(160, 11, 8))
	m.took(m.begin(), taken(170, 20, 12))
	require.EqualValues(t, 100, m.current())
	m.took(m.begin(), taken(180, 30, 21))
	require.EqualValues(t, 160, m.current())

	stale := m.begin()
	m.doubt()
	m.took(stale, taken(500, 31, 31))
	require.EqualValues(t, 160, m.current(), "it was sent before a look failed")
	require.Empty(t, m.pending)
}

// While a transaction stays open for long, the looks that wait are bounded.
func TestMarksThatWaitAreBounded(t *testing.T) {
	var m watermark
	for i := range int64(10_000) {
		m.take(m.begin(), lanedb.Watermark{Seq: 100 * i, XID: 10 * i, Xmin: 5})
		require.LessOrEqual(t, len(m.pending), maxPending)
	}
	m.take(m.begin(), lanedb.Watermark{Seq: 2_000_000, XID: 100_000, Xmin: 99_991})
	require.EqualValues(t, 999_900, m.current(), "the latest of them counts")
}

// Between a look and the next look that was answered, the server may have become another one.
func TestMarkBeforeALookThatFailedDoesNotCount(t *testing.T) {
	var m watermark
	look := func(seq, xid int64) {
		m.take(m.begin(), lanedb.Watermark{Seq: seq, XID: xid, Xmin: xid, Timeline: "1", Incarnation: "a"})
	}
	look(100, 7)
	m.doubt()
	look(120, 9)
	require.Zero(t, m.current())
	look(130, 11)
	require.EqualValues(t, 120, m.current())
	m.doubt()
	look(99, 13)
	resets, _ := m.generation()
	require.Equal(t, 1, resets, "what was seen before the failure is still compared")
}
