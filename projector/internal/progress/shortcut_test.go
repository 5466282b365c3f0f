package progress

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/projector/internal/schedule"
)

// A mark counts for a shortcut if nothing but the transactions that have been open for long can still draw a number below it.
func TestShortcutIsFound(t *testing.T) {
	waits := []pendingMark{{seq: 100, xid: 10}, {seq: 200, xid: 20}, {seq: 300, xid: 30}}
	for name, c := range map[string]struct {
		running []int64
		xmax    int64
		to      int64
		open    []int64
	}{
		"nothing is open":                       {nil, 40, 0, nil},
		"one is open since before all marks":    {[]int64{5}, 40, 300, []int64{5}},
		"another began before the latest":       {[]int64{5, 25}, 40, 200, []int64{5}},
		"another began before the second":       {[]int64{5, 15}, 40, 100, []int64{5}},
		"others began later":                    {[]int64{5, 35, 36}, 40, 300, []int64{5}},
		"two are open":                          {[]int64{5, 7}, 40, 300, []int64{5, 7}},
		"more than may be":                      {[]int64{1, 2, 3, 4, 5, 6, 7, 8, 9}, 40, 0, nil},
		"the latest mark is younger than this":  {[]int64{5}, 25, 200, []int64{5}},
		"all but the first are younger":         {[]int64{5}, 11, 100, []int64{5}},
		"only younger transactions are running": {[]int64{12}, 40, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var s Shortcut
			s.find(lanedb.Watermark{Running: c.running, Xmax: c.xmax}, waits)
			require.Equal(t, c.to, s.to)
			require.Equal(t, c.open, s.open)
		})
	}
}

// A lane's progress on a shortcut is void when one of its transactions has ended, and stays when another one begins.
func TestShortcutEndsWithItsTransactions(t *testing.T) {
	m := Watermark{Patience: 0}
	look := func(seq, xid int64, running ...int64) Shortcut {
		xmin := xid
		if len(running) > 0 {
			xmin = running[0]
		}
		m.Take(m.Begin(), lanedb.Watermark{Seq: seq, XID: xid, Xmin: xmin, Xmax: xid, Running: running})
		return m.Shortcut()
	}
	look(100, 10, 5)
	one := look(200, 20, 5)
	require.EqualValues(t, 100, one.to)

	var lane schedule.Place
	one.Advance(&lane, 90)
	one.Advance(&lane, 150)
	require.EqualValues(t, 100, lane.To, "it never passes the mark")
	cursor := func(s Shortcut) (after int64, while []int64) {
		c := lanedb.Cursor{Position: lanedb.Position{Sent: 50}}
		s.begin(&c, lane)
		return c.After, c.While
	}
	after, while := cursor(one)
	require.EqualValues(t, 100, after)
	require.Equal(t, []int64{5}, while)

	ended := look(300, 30)
	after, while = cursor(ended)
	require.Zero(t, after)
	require.Empty(t, while)
	ended.Advance(&lane, 1000)
	require.EqualValues(t, 100, lane.To, "there is no shortcut to come to")

	look(400, 40, 35)
	other := look(500, 50, 35)
	require.EqualValues(t, 400, other.to)
	after, _ = cursor(other)
	require.Zero(t, after, "it came this far while other transactions were open")
	other.Advance(&lane, 380)
	after, _ = cursor(other)
	require.EqualValues(t, 380, after)
}

func TestShortcutNeedsPatience(t *testing.T) {
	m := Watermark{Patience: time.Hour}
	for i := range int64(100) {
		m.Take(m.Begin(), lanedb.Watermark{Seq: 100 * i, XID: 10 + i, Xmin: 5, Xmax: 10 + i, Running: []int64{5}})
		require.Empty(t, m.Shortcut().open)
	}
}

// Another server gives out transaction ids anew.
func TestShortcutEndsWithItsServer(t *testing.T) {
	m := Watermark{Patience: 0}
	at := lanedb.Watermark{Seq: 100, XID: 10, Xmin: 5, Xmax: 10, Running: []int64{5}, Timeline: "1", Incarnation: "a"}
	m.Take(m.Begin(), at)
	at.XID, at.Xmax = 20, 20
	m.Take(m.Begin(), at)
	before := m.Shortcut()
	require.NotEmpty(t, before.open)
	at.Incarnation = "b"
	m.Take(m.Begin(), at)
	require.Empty(t, m.Shortcut().open)
	require.NotEqual(t, before.N, m.Shortcut().N)
}

// A search got no further than the end of a shortcut. The transaction ends, and the mark rises to this number: that is another limit,
// because the search begins again in front of it.
func TestLimitOfSearchesBelongsToItsShortcut(t *testing.T) {
	m := Watermark{Patience: 0}
	look := func(seq, xid int64, running ...int64) schedule.Place {
		m.Take(m.Begin(), lanedb.Watermark{Seq: seq, XID: xid, Xmin: running[0], Xmax: xid, Running: running})
		short := m.Shortcut()
		return short.Limit(m.Current())
	}
	look(100, 10, 5)
	limit := look(200, 20, 5, 15)
	require.EqualValues(t, 100, limit.To)
	m.Patience = time.Hour
	next := look(300, 30, 15)
	require.EqualValues(t, 100, m.Current())
	require.EqualValues(t, 100, next.To)
	require.NotEqual(t, limit, next)
}
