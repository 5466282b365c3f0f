package projector

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/outbox"
)

func TestMarkCounts(t *testing.T) {
	mark := func(seq, xid, xmin, written, flushed int64, timeline, incarnation string) outbox.Watermark {
		return outbox.Watermark{
			Seq: seq, XID: xid, Xmin: xmin, Written: written, Flushed: flushed, Timeline: timeline, Incarnation: incarnation,
		}
	}
	first := mark(100, 7, 7, 5000, 4000, "1", "a")
	for name, c := range map[string]struct {
		then   outbox.Watermark
		valid  int64
		resets int
	}{
		"a transaction may still commit a lower number": {mark(120, 9, 7, 6000, 6000, "1", "a"), 0, 0},
		"a crash may still forget the number":           {mark(120, 9, 9, 6000, 4999, "1", "a"), 0, 0},
		"neither":                                       {mark(120, 9, 9, 6000, 5000, "1", "a"), 100, 0},
		"numbers were forgotten":                        {mark(99, 9, 9, 6000, 6000, "1", "a"), 0, 1},
		"a standby took over":                           {mark(120, 9, 9, 6000, 6000, "2", "a"), 0, 1},
		"the server crashed":                            {mark(120, 9, 9, 6000, 6000, "1", "b"), 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var m watermark
			m.take(first)
			require.Zero(t, m.current())
			m.take(c.then)
			require.Equal(t, c.valid, m.current())
			resets, _ := m.generation()
			require.Equal(t, c.resets, resets)
		})
	}
}

// Between a look and the next look that was answered, the server may have become another one.
func TestMarkBeforeALookThatFailedDoesNotCount(t *testing.T) {
	var m watermark
	look := func(seq, xid int64) {
		m.take(outbox.Watermark{Seq: seq, XID: xid, Xmin: xid, Written: seq, Flushed: seq, Timeline: "1", Incarnation: "a"})
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
